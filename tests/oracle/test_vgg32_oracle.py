"""Vaze et al.'s published TinyImageNet classifiers in our network: their accuracy, AUROC and OSCR."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from gradmix.cli import main
from gradmix.data import get_split, load_images
from gradmix.detection import make_detector
from gradmix.errors import UserError
from gradmix.evaluation import open_set_metrics
from gradmix.recipe import load_recipe
from gradmix.recognition import extract
from gradmix.training.session import build_network
from gradmix.views import Normalizer

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
# 1,000 known validation images and every ninth of the 9,000 unknown ones: accuracy, AUROC and OSCR of MLS,
# AUROC of MSP. With all of them (as in the test of the command) they are WHOLE.
MEASURED = {0: (85.1, 83.23, 75.07, 83.05)}
WHOLE = {0: (85.1, 83.24, 75.05, 83.00), 1: (81.2, 79.92, 70.39, 79.44)}
EVERY = 9


def find_file_and_data(trial: int) -> tuple[Path, Path]:
    """(weights, data), or skip."""
    data = os.environ.get("GRADMIX_DATA")
    if not data or not (Path(data) / "tiny-imagenet").is_dir():
        pytest.skip("set GRADMIX_DATA to a folder with tiny-imagenet")
    weights = Path(os.environ.get("GRADMIX_WEIGHTS", Path(data).parent / "weights"))
    file = weights / f"vaze_tinyimagenet_{trial}.pth"
    if not file.is_file():
        pytest.skip(f"set GRADMIX_WEIGHTS to a folder with {file.name}, which its authors publish")
    return file, Path(data)


@pytest.mark.parametrize("trial", MEASURED)
def test_their_network_gives_their_numbers(trial: int) -> None:
    file, data = find_file_and_data(trial)
    fields = {"method": "frozen", "init": str(file), "init_head": True}
    recipe = load_recipe("paper/ce-plus-tinyimagenet", fields)
    split = get_split("tinyimagenet", trial)
    network = build_network(recipe, len(split.known)).eval()
    images = load_images("tiny-imagenet", split="val", data_root=data)
    known = images.only([int(c) for c in split.known])  # the label is the place in the list, not the rank
    unknown = images.only([int(c) for c in split.unknown], as_unknown=True)
    assert (len(known), len(unknown)) == (1000, 9000)
    unknown = unknown.select(torch.arange(0, len(unknown), EVERY))
    normalizer = Normalizer.fit(images.images, recipe.views.normalize)
    on_known, on_unknown = (extract(network, normalizer, part) for part in (known, unknown))

    found: list[float] = []
    for name in ("mls", "msp"):
        detector = make_detector(name)
        detector.fit(on_known, len(split.known))  # nothing is learned
        metrics = open_set_metrics(detector.score(on_known), on_known.labels, detector.score(on_unknown))
        found += [100 * metrics[key] for key in ("closed_set_accuracy", "auroc", "oscr")]
    accuracy, mls, oscr, same_accuracy, msp, _ = found
    assert accuracy == same_accuracy
    assert (accuracy, mls, oscr, msp) == pytest.approx((WHOLE if EVERY == 1 else MEASURED)[trial], abs=0.05)


@pytest.mark.parametrize("trial", WHOLE)
def test_the_command_gives_their_numbers(
    trial: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On all validation images, where there are no training images: five minutes of a core."""
    file, data = find_file_and_data(trial)
    (tmp_path / "tiny-imagenet").mkdir()
    for part in (data / "tiny-imagenet").rglob("valid*.parquet"):
        (tmp_path / "tiny-imagenet" / part.name).symlink_to(part)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
    words = [
        "--weights",
        str(file),
        "--encoder",
        "vgg32",
        "--protocol",
        "tinyimagenet",
        "--trial",
        str(trial),
    ]
    assert main(["evaluate", *words, "--data-root", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    folder = tmp_path / "evaluations" / f"vaze_tinyimagenet_{trial}-tinyimagenet-{trial}"
    found = json.loads((folder / "evaluation.json").read_text())
    mls, msp = found["metrics"]["mls"], found["metrics"]["msp"]
    numbers = (mls["closed_set_accuracy"], mls["auroc"], mls["oscr"], msp["auroc"])
    assert [100 * number for number in numbers] == pytest.approx(WHOLE[trial], abs=0.05)
    assert found["split"] == get_split("tinyimagenet", trial).hash
    assert "knn" in err.partition("note: left out")[2]
    row = next(line.split() for line in out.splitlines() if line.split()[0] == "mls")
    assert (row[1], row[2]) == (f"{100 * mls['closed_set_accuracy']:.2f}", f"{100 * mls['auroc']:.2f}")


def test_they_are_refused_where_they_do_not_fit() -> None:
    file, _ = find_file_and_data(0)
    fields = {"method": "frozen", "init": str(file), "init_head": True}
    with pytest.raises(UserError, match=r"it lacks 'layer1.0.conv1.weight'"):
        build_network(load_recipe("frozen", {"init": str(file)}), 20)
    with pytest.raises(
        UserError, match=r"'fc.weight' in .* is \(20, 128\), the classifier wants \(19, 128\)"
    ):
        build_network(load_recipe("paper/ce-plus-tinyimagenet", fields), 19)
