"""A training ends with what was learned; images in val/ set the threshold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gradmix.cli import main
from gradmix.cli.learned import describe_learned
from gradmix.recognition import load, summarize_held_out
from gradmix.training import RunFolder
from tests.cli.conftest import TINY, save_shapes
from tests.training.tiny import CLASSES

Refused = Callable[..., str]
NO_ADVICE = [("frozen", "pretrained", False), ("frozen", "w.pth", True), ("gradmix", "pretrained", True)]


def test_training_ends_with_what_was_learned(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(photos), "--out", "my run", *TINY, "--max-steps", "1"]) == 0
    out, err = capsys.readouterr()
    assert out == "my run/model.safetensors\n"
    model = load("my run")
    assert model.calibration is not None
    decided = model.decision.decide(model.calibration)
    right = int((decided.nearest == model.calibration.labels).sum())
    accepted = int((decided.label >= 0).sum())
    both = int((decided.label == model.calibration.labels).sum())
    assert err.splitlines()[-4:] == [
        f"learned 3 classes: of 9 images held out of training it takes {100 * right / 9:.1f} % for their own "
        "class (guessing: 33.3 %)",
        "threshold: at most 20 % of known images are to be called unknown; of those 9 it accepts "
        f"{100 * accepted / 9:.1f} %, {100 * both / 9:.1f} % under their right name",
        "unknown images: nothing is known yet; measure with: gradmix evaluate 'my run' --known test/ "
        "--unknown other/",
        "next: gradmix predict 'my run' new/",
    ]
    assert accepted == 8  # one in five of 9 + 1 may be rejected: the threshold is the second smallest score


def test_without_held_out_images_nothing_is_claimed(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(photos), "--out", "run", *TINY, "--max-steps", "1", "--holdout", "0"]) == 0
    *_, learned, following = capsys.readouterr().err.splitlines()
    assert "learned 3 classes; no image was held out, so how many it names right is not known" in learned
    assert following == "next: gradmix predict run new/"
    assert summarize_held_out(load("run")) is None


def test_images_that_the_score_learned_from_are_not_counted(trained: Path) -> None:
    model = load(trained / "run")
    whole = summarize_held_out(model)
    assert whole is not None
    assert whole.images == 9

    class Learning(type(model.decision.detector)):  # type: ignore[misc]
        uses_held_out = True

    detector = Learning(**model.index.settings())
    detector.__dict__.update(model.index.__dict__)
    from dataclasses import replace

    half = summarize_held_out(replace(model, decision=replace(model.decision, detector=detector)))
    assert half is not None
    assert half.images == 6  # of three held-out images per class every second one is for the score


def test_threshold_that_promises_nothing_is_not_praised(trained: Path) -> None:
    from dataclasses import replace

    model = load(trained / "run")
    loose = model.with_threshold(replace(model.threshold, guaranteed=False, value=float("-inf")))
    assert not any("threshold:" in line for line in describe_learned(loose, Path("run")))


@pytest.mark.parametrize(("method", "init", "wrong"), [("frozen", "pretrained", True), *NO_ADVICE])
def test_a_published_network_that_hardly_knows_such_images(
    trained: Path, method: str, init: str, wrong: bool
) -> None:
    from dataclasses import replace

    model = load(trained / "run")
    assert model.calibration is not None
    nearest = model.decision.decide(model.calibration).nearest
    seen = replace(model.calibration, labels=(nearest + 1) % 3 if wrong else nearest)
    model = replace(model, calibration=seen, recipe={**model.recipe, "method": method, "init": init})
    advice = [line for line in describe_learned(model, Path("run")) if "--recipe photos-finetune" in line]
    assert len(advice) == ((method, init, wrong) not in NO_ADVICE)


@pytest.fixture
def divided(tmp_path: Path) -> Path:
    """divided/train, val and test with class folders; val and test also with images of another class."""
    folder = tmp_path / "divided"
    save_shapes(folder / "train", CLASSES, 6)
    save_shapes(folder / "val", CLASSES, 4, seed=1)
    save_shapes(folder / "test", CLASSES, 2, seed=2)
    for part in ("val", "test"):
        save_shapes(folder / "extra", ("cross",), 3, seed=3)
        shutil.move(folder / "extra" / "cross", folder / part / "unknown")
        shutil.rmtree(folder / "extra")
    return folder


def test_val_sets_the_threshold(divided: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(divided), "--out", "run", *WITHOUT_HOLDOUT, "--max-steps", "1"]) == 0
    err = capsys.readouterr().err
    assert "18 images of 3 classes" in err
    assert "the threshold from the 12 images in val/" in err
    assert "of 12 images in val/ it takes" in err
    model, run = load("run"), RunFolder.open("run")
    assert model.calibration is not None
    assert torch.equal(model.calibration.labels.bincount(), torch.tensor([4, 4, 4]))  # no unknown ones
    assert model.threshold.n == 12
    assert model.threshold.held_out
    assert len(model.index.state()["labels"]) == 18  # nothing was kept back
    assert run.recipe().detection.holdout == 0
    assert run.facts()["data"]["threshold_images"] == "val"


def test_a_holdout_that_is_asked_for_leaves_val_alone(
    divided: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*WITHOUT_HOLDOUT, "--holdout", "0.34", "--max-steps", "1"]
    assert main(["train", str(divided), "--out", "run", *words]) == 0
    assert "val/" not in capsys.readouterr().err
    assert load("run").threshold.n == 6


def test_a_resumed_run_takes_val_again_and_notices_changes(divided: Path, refused: Refused) -> None:
    assert main(["train", str(divided), "--out", "run", *WITHOUT_HOLDOUT, "--max-steps", "1"]) == 0
    first = load("run").threshold
    Path("run/model.safetensors").unlink()
    assert main(["train", "--resume", "run"]) == 0
    assert load("run").threshold == first
    Path("run/model.safetensors").unlink()
    (divided / "val" / "bar" / "00.png").unlink()
    assert "the training images have changed" in refused("train", "--resume", "run")


def test_val_without_a_known_class(divided: Path, refused: Refused) -> None:
    for kind in CLASSES:
        shutil.rmtree(divided / "val" / kind)
    line = refused("train", divided, "--out", "run", *WITHOUT_HOLDOUT)
    assert "no folder of val/ has the name of a class of train/" in line
    assert not Path("run").exists()


def test_resume_by_the_name_of_the_run(photos: Path, refused: Refused) -> None:
    assert main(["train", str(photos), "--out", "run", *TINY, "--max-steps", "1"]) == 0
    Path("run/model.safetensors").unlink()
    assert "are two runs; give one" in refused("train", "--resume", "run", "--out", "other")
    assert "holds no run" in refused("train", "--resume", "nowhere")
    assert "give only its folder" in refused("train", "--resume", "run", "--epochs", "3")
    assert main(["train", "--resume", "run"]) == 0
    Path("run/model.safetensors").unlink()
    assert main(["train", "--resume", "--out", "run"]) == 0  # as it was always written
    assert json.loads(Path("run/run.json").read_text())["steps"] == 1


WITHOUT_HOLDOUT = [word for i, word in enumerate(TINY) if "--holdout" not in TINY[max(0, i - 1) : i + 1]]
