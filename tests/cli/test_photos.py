"""A folder of real photographs, nothing asked for: the pre-trained network, through the commands."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
import torch
from PIL import Image

from gradmix.cli import main
from gradmix.data import load_images
from gradmix.recognition import load

pytestmark = pytest.mark.slow
KNOWN, EACH, TESTED = 4, 20, 10


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ and test/ of four classes of TinyImageNet, new/ of a fifth, other/ of the rest."""
    data = os.environ.get("GRADMIX_DATA")
    if not data or not (Path(data) / "tiny-imagenet").is_dir():
        pytest.skip("set GRADMIX_DATA to a folder with tiny-imagenet")
    images = load_images("tiny-imagenet", split="train", data_root=data)
    root = tmp_path_factory.mktemp("photos")
    present = torch.unique(images.labels).tolist()
    for number, label in enumerate(present):
        rows = (images.labels == label).nonzero()[: EACH + TESTED, 0]
        name = f"class{number}"
        if number < KNOWN:
            parts = {f"train/{name}": rows[:EACH], f"test/{name}": rows[EACH:]}
        elif number == KNOWN:
            parts = {"taught": rows[:10], "new": rows[EACH:]}
        else:
            parts = {"other": rows[:2]}
        for folder, chosen in parts.items():
            (root / folder).mkdir(parents=True, exist_ok=True)
            for row in chosen.tolist():
                picture = Image.fromarray(images.images[row : row + 1][0].permute(1, 2, 0).numpy())
                picture.save(root / folder / f"{row}.png")
    assert main(["train", str(root / "train"), "--out", str(root / "run")]) == 0
    return root


def answers(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    capsys.readouterr()
    assert main(["predict", str(run), str(folder), "--format", "csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_known_photographs_are_named_and_others_rejected(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load(photos / "run")
    assert model.spec.encoder == "efficientnet_lite0"
    assert model.spec.projection == "whiten"
    assert model.threshold.promised
    rows = answers(photos / "run", photos / "test", capsys)
    right = [row for row in rows if row["nearest"] == Path(row["file"]).parent.name]
    assert len(right) >= 0.85 * len(rows)  # nearly all; guessing would be a quarter
    rejected = [row for row in answers(photos / "run", photos / "other", capsys) if row["label"] == "unknown"]
    accepted = [row for row in rows if row["label"] != "unknown"]
    assert len(accepted) >= 0.8 * len(rows)
    assert len(rejected) >= 10  # a third of 30; of the known ones it is one in twenty


def test_a_class_is_taught_and_forgotten(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "model.safetensors"
    run.write_bytes((photos / "run" / "model.safetensors").read_bytes())
    assert main(["enroll", str(run), str(photos / "taught"), "--name", "taught"]) == 0
    named = [row for row in answers(run, photos / "new", capsys) if row["label"] == "taught"]
    assert len(named) >= 7  # of ten
    assert main(["forget", str(run), "--name", "taught"]) == 0
    assert main(["explain", str(run), str(next((photos / "new").iterdir())), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "explain.html").is_file()


def test_it_says_which_recipe_and_why(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(photos / "train"), "--out", str(photos / "again")]) == 0
    said = capsys.readouterr().err
    assert "recipe photos: a network trained on ImageNet, frozen" in said
    assert "learned 4 classes" in said
    facts = json.loads((photos / "again" / "run.json").read_text(encoding="utf-8"))
    assert facts["steps"] == 0


def test_trained_further(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two steps of recipe photos-finetune: the first half stays, the rest moves, and the model answers."""
    words = ["--recipe", "photos-finetune", "--max-steps", "2", "--batch-size", "16", "--image-size", "64"]
    assert main(["train", str(photos / "train"), "--out", str(tmp_path / "run"), *words]) == 0
    before = load(photos / "run").network.encoder.encoder.state_dict()  # as published, beside its classifier
    after = load(tmp_path / "run").network.encoder.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    block = {int(name.split(".")[1]) for name in moved if name.startswith("_blocks.")}
    assert block == set(range(5, 16))
    assert not any(name.startswith(("_conv_stem", "_bn0")) for name in moved)
    rows = answers(tmp_path / "run", photos / "test", capsys)
    assert len(rows) == KNOWN * TESTED
    assert sum(Path(row["file"]).parent.name == row["nearest"] for row in rows) > 0.6 * len(rows)
