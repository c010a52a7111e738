"""Every mistake: exit code 2, one line that names the culprit, nothing left in --out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gradmix.cli import main
from tests.cli.conftest import TINY

Refused = Callable[..., str]


@pytest.fixture
def train_refused(refused: Refused, photos: Path) -> Refused:
    """Train on photos/ into out/, with more words; out/ must not be there afterwards."""

    def check(*words: str | Path, source: Path | None = photos) -> str:
        line = refused("train", *([source] if source else []), "--out", "out", *TINY, *words)
        assert not Path("out").exists(), list(Path("out").rglob("*"))
        return line

    return check


def test_images_that_cannot_be_read_are_named(train_refused: Refused, photos: Path) -> None:
    (photos / "bar" / "03.png").write_text("this is no image")
    line = train_refused()
    assert str(photos / "bar" / "03.png") in line
    assert "--skip-bad" in line
    (photos / "bar" / "03.png").write_bytes(b"")
    assert "03.png" in train_refused()
    whole = (photos / "bar" / "04.png").read_bytes()
    (photos / "bar" / "03.png").write_bytes(whole[: len(whole) // 2])
    assert "03.png" in train_refused()


def test_folders_that_cannot_be_trained_on(train_refused: Refused, photos: Path) -> None:
    (photos / "nothing").mkdir()
    assert "nothing has no images" in train_refused()
    (photos / "nothing").rmdir()
    assert "no such file or folder: nowhere/here" in train_refused(source=Path("nowhere/here"))
    shutil.rmtree(photos / "bar")
    shutil.rmtree(photos / "disc")
    assert "only one class" in train_refused()
    assert "what to train on?" in train_refused(source=None)


def test_a_class_that_would_be_taken_for_a_rejection(train_refused: Refused, photos: Path) -> None:
    (photos / "bar").rename(photos / "unknown")
    assert "no class can be called 'unknown'" in train_refused()


def test_a_class_with_fewer_images_than_neighbours(train_refused: Refused, photos: Path) -> None:
    for i in range(2, 12):
        (photos / "disc" / f"{i:02d}.png").unlink()
    line = train_refused("--holdout", "0")
    assert "class 'disc' has 2 training images, fewer than k = 3" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recipe", "smal"], "no recipe 'smal'; did you mean 'small'?"),
        (["--recipe", "nowhere.yaml"], "no recipe file nowhere.yaml"),
        (["--epoks", "3"], "'epoks'; did you mean 'epochs'?"),
        (["--epochs", "three"], "epochs must be a whole number, not 'three'"),
        (["--layers", "conv42"], "no layer 'conv42'; did you mean 'conv4_2'?"),
        (["--mixer", "cutmx"], "did you mean 'cutmix'?"),
        (["--batch-size", "1"], "batch_size must be at least 2"),
        (["--precision", "fp16", "--device", "cpu"], "precision fp16: CPUs have no fp16"),
        (["--init", "nowhere.pth"], "init: no file nowhere.pth"),
        (["--known", "bar,disk"], "no class 'disk'; did you mean 'disc'?"),
        (["--known", "bar"], "at least 2, and not all"),
        (["--n-known", "3"], "at least 2, and not all"),
        (["--protocol", "mnist"], "not both"),
        (["--n-known", "2", "--split-seed", "-1"], "must not be negative, not -1"),
        (["--split-seed", "3"], "--split-seed draws the known classes: give --n-known too"),
        (["--family", "neal_2018"], "--family is about a protocol's splits: give --protocol too"),
        (["--clip-norm", "-1"], "clip_norm must be positive"),
        (["--method", "ce", "--label-smoothing", "1.5"], "label_smoothing must lie in [0, 1), not 1.5"),
        (["--method", "ce+ssl", "--simclr-temperature", "-1"], "simclr_temperature must be positive"),
        (["--method", "ce+ssl", "--lam", "-1"], "theta and lam must not be negative"),
        (["--lr", "1e30", "--warmup-steps", "0", "--log-every", "50"], "the loss became"),
    ],
)
def test_wrong_words(words: list[str], message: str, train_refused: Refused) -> None:
    assert message in train_refused(*words)


def test_protocols_that_are_not_there(train_refused: Refused) -> None:
    assert "did you mean 'mnist'?" in train_refused("--protocol", "mnits", source=None)
    assert "no trial 7 of mnist" in train_refused("--protocol", "mnist", "--trial", "7", source=None)
    assert "did you mean 'arpl_2020'?" in train_refused(
        "--protocol", "mnist", "--family", "arpl2020", source=None
    )


def test_after_a_mistake_the_same_command_put_right_goes_through(
    train_refused: Refused, photos: Path
) -> None:
    train_refused("--layers", "conv42")
    assert main(["train", str(photos), "--out", "out", *TINY, "--max-steps", "1"]) == 0


def test_a_folder_that_holds_a_run_is_not_overwritten(run: Path, photos: Path, refused: Refused) -> None:
    before = {file: file.read_bytes() for file in run.iterdir() if file.is_file()}
    assert "already holds a run; go on with --resume" in refused("train", photos, "--out", run, *TINY)
    assert before == {file: file.read_bytes() for file in run.iterdir() if file.is_file()}


def test_resume_where_it_makes_no_sense(
    run: Path, trained: Path, photos: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "holds no run" in refused("train", "--resume", "--out", "nowhere")
    assert not Path("nowhere").exists()
    others = (["--epochs", "9"], [photos], ["--recipe", "small"], ["--known", "bar,disc"], ["--skip-bad"])
    for words in others:
        assert "give only its folder" in refused("train", "--resume", "--out", run, *words)
    (run / "model.safetensors").unlink()  # else it is finished
    facts = (run / "run.json").read_text()
    (run / "run.json").write_text(facts.replace('"content_hash": "', '"content_hash": "0'))
    assert "the training images have changed" in refused("train", "--resume", "--out", run)
    (run / "run.json").write_text('{"command": "gradmix demo"}')
    assert "was made by 'gradmix demo'; run that again" in refused("train", "--resume", "--out", run)
    (run / "run.json").write_text("{")
    assert "run.json cannot be read" in refused("train", "--resume", "--out", run)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04K\x01."])
def test_resume_from_a_damaged_state(content: bytes, run: Path, refused: Refused) -> None:
    (run / "model.safetensors").unlink()
    (run / "last.pt").write_bytes(content)
    assert "last.pt is" in refused("train", "--resume", "--out", run)


def test_evaluate_what_cannot_be_evaluated(run: Path, trained: Path, refused: Refused) -> None:
    assert "no model at nowhere" in refused("evaluate", "nowhere")
    assert "nothing there is unknown: give --known DIR --unknown DIR" in refused("evaluate", run)
    test, others = trained / "test", trained / "others"
    assert "go together" in refused("evaluate", run, "--known", test)
    words = ("--known", test, "--unknown", others, "--protocol", "mnist")
    assert "give --protocol, or --known and --unknown, not both" in refused("evaluate", run, *words)
    assert "--trial is about a protocol's splits" in refused("evaluate", run, "--trial", "1")
    both = ("--known", test, "--unknown", others)
    assert "'mls' needs logits" in refused("evaluate", run, *both, "--detector", "mls")
    assert "did you mean 'mls'" in refused("predict", run, test, "--detector", "mpls")
    assert "'mls' needs logits" in refused("predict", run, test, "--detector", "mls")
    Path("file").touch()
    assert "file/results: " in refused("evaluate", run, *both, "--out", "file/results")
    (trained / "test" / "bar").rename(trained / "test" / "barre")
    line = refused("evaluate", run, *both)
    (trained / "test" / "barre").rename(trained / "test" / "bar")
    assert "a class 'barre' that the model does not know (it knows: bar, disc, square)" in line
    (run / "model.safetensors").unlink()
    assert "not finished; go on with: gradmix train --resume" in refused("evaluate", run, *both)
    (run / "last.pt").unlink()  # killed before the first checkpoint
    assert "not finished" in refused("evaluate", run, *both)
    assert not (run / "evaluation.json").exists()


def test_predict_what_cannot_be_predicted(run: Path, trained: Path, refused: Refused) -> None:
    image = trained / "test" / "bar" / "00.png"
    assert "no such file or folder: nowhere.png" in refused("predict", run, image, "nowhere.png")
    Path("empty").mkdir()
    assert "no images in empty" in refused("predict", run, "empty")
    Path("bad.png").write_text("no image")
    assert "bad.png" in refused("predict", run, image, "bad.png")
    assert "no model at nowhere" in refused("predict", "nowhere", image)
    model = run / "model.safetensors"
    model.write_bytes(model.read_bytes()[:1000])
    assert "model.safetensors is truncated or not a model file" in refused("predict", run, image)
