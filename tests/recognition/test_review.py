"""Planted wrong labels, duplicates and odd ones out are found, and the rest is left alone."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gradmix.cli import main
from gradmix.data import ImageSet
from gradmix.detection import Outputs
from gradmix.detection.bank import unit_rows
from gradmix.errors import UserError
from gradmix.recognition import Recognizer, fit, save
from gradmix.recognition.review import (
    DUPLICATE,
    MISLABELLED,
    ODD,
    _correlate,
    _count_neighbours,
    _find_mislabelled,
    _find_nearest,
    _find_odd,
    review_images,
)
from tests.training.tiny import CLASSES, tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def model() -> Recognizer:
    return fit(tiny_images(24), tiny_recipe(epochs=15, holdout=0.25))


def test_the_search_is_that_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = unit_rows(torch.randn(37, 5, generator=torch.Generator().manual_seed(0)))
    monkeypatch.setattr("gradmix.recognition.review._BYTES_AT_ONCE", 8 * 37 * 4)  # four rows at a time
    nearest, cosine = _find_nearest(unit, 6)
    for i in range(37):
        others = sorted((j for j in range(37) if j != i), key=lambda j: -float(unit[i] @ unit[j]))[:6]
        assert nearest[i].tolist() == others
        assert cosine[i].tolist() == pytest.approx([float(unit[i] @ unit[j]) for j in others], abs=1e-5)


def test_mislabelled_by_hand() -> None:
    nearest = torch.tensor([[1, 2, 3], [0, 2, 3], [1, 0, 3], [0, 1, 4], [5, 3, 0], [4, 3, 0]])
    labels = torch.tensor([0, 0, 0, 1, 1, -1])
    found = [*_find_mislabelled(nearest, labels, ("a", "b"))]
    # 3 has neighbours 0, 0, 1: one of its own; 4 has -1, 1, 0; only with its own gone, 3 is a concern.
    assert found == []
    labels[4] = 0
    (one,) = _find_mislabelled(nearest, labels, ("a", "b"))
    assert (one.first, one.sure) == (3, 1.0)
    assert one.what == "called b, but of its 3 nearest images 3 are a and none b"


def test_as_many_neighbours_as_the_smallest_class_has() -> None:
    labels = torch.tensor([0] * 50 + [1] * 12 + [-1] * 3)
    assert _count_neighbours(labels) == 11
    assert _count_neighbours(labels[:50]) == 20
    assert _count_neighbours(torch.tensor([0, 0, 1])) == 2


def test_an_odd_one_out() -> None:
    generator = torch.Generator().manual_seed(1)
    points = torch.eye(8)[0] * 5 + torch.randn(60, 8, generator=generator)
    points[7] = -points[7]
    found = [*_find_odd(unit_rows(points), torch.zeros(60, dtype=torch.int64), ("a",))]
    assert found[0].first == 7
    assert found[0].what == "only 1 of the 60 images of a are so unlike the others"
    assert found[0].sure == max(c.sure for c in found)
    assert len(found) <= 4


def test_a_picture_again() -> None:
    pictures = torch.rand(6, 16, 16, generator=torch.Generator().manual_seed(2)) * 255
    for again in (pictures, pictures.flip(2), pictures.roll((1, -1), dims=(1, 2)), pictures * 0.5 + 20):
        assert float(_correlate(pictures, again).min()) > 0.999
    assert float(_correlate(pictures, pictures.roll(1, dims=0)).max()) < 0.6
    assert _correlate(torch.full((1, 16, 16), 9.0), pictures[:1]).tolist() == [0.0]


class Knowing:
    """Stands for a model whose features tell what each image really shows, and a little more."""

    def __init__(self, *shown: torch.Tensor) -> None:
        self._shown = iter(shown)

    def convert(self, images: ImageSet) -> ImageSet:
        return images

    def outputs(self, images: ImageSet, what: str, cache: bool, penultimate: bool) -> Outputs:
        number = images.images[:].float().mean(dim=(1, 2, 3))  # the same for a mirrored image
        more = torch.stack([(number * frequency).sin() for frequency in (1.0, 7.0, 31.0)], dim=1)
        return Outputs(torch.cat([3 * torch.eye(3)[next(self._shown)], more], dim=1), images.labels)


def test_what_is_planted_is_found() -> None:
    train, test = tiny_images(24, seed=3), tiny_images(8, seed=4)
    labels = train.labels.clone()
    labels[5] = (labels[5] + 1) % 3
    again = train.images[:][40:41].flip(3)  # mirrored, and in the other part
    other = test.images[:][2:3]
    model: Any = Knowing(train.labels, torch.cat([test.labels, train.labels[40:41], test.labels[2:3]]))
    test = ImageSet(
        torch.cat([test.images[:], again, other]),
        torch.cat([test.labels, train.labels[40:41], (test.labels[2:3] + 1) % 3]),
        CLASSES,
    )
    review = review_images(model, [ImageSet(train.images, labels, CLASSES), test], ["train", "test"])
    by_kind = {kind: [c for c in review.concerns if c.kind == kind] for kind in (MISLABELLED, DUPLICATE, ODD)}
    assert {c.first for c in by_kind[MISLABELLED]} == {5, 72 + 25}
    pairs = {(c.first, c.second): c.what for c in by_kind[DUPLICATE]}
    assert ", in train and in test" in pairs[40, 72 + 24]
    own, wrong = CLASSES[int(test.labels[2])], CLASSES[int(test.labels[25])]
    assert f"called {own} and {wrong}" in pairs[72 + 2, 72 + 25]
    assert by_kind[DUPLICATE][0].sure >= by_kind[DUPLICATE][-1].sure
    assert (review.name(72 + 2), review.class_name(72 + 2)) == ("test#2", own)
    with pytest.raises(UserError, match="fewer than two images"):
        review_images(model, [test.select([0])], ["all"])


def test_the_command(model: Recognizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(model, tmp_path / "model.safetensors")
    images = tiny_images(12, seed=5)
    for i, (pixels, label) in enumerate(zip(images.images[:], images.labels.tolist(), strict=True)):
        file = tmp_path / "photos" / CLASSES[label] / f"{i:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(pixels.permute(1, 2, 0))).save(file)
    shutil.copy(tmp_path / "photos" / CLASSES[0] / "04.png", tmp_path / "photos" / CLASSES[1] / "copy.png")
    photos, run = str(tmp_path / "photos"), str(tmp_path / "model.safetensors")
    out = tmp_path / "review"
    assert main(["data", "check", photos, "--model", run, "--out", str(out)]) in (0, 1)
    shown = capsys.readouterr().out
    assert f", called {CLASSES[0]} and {CLASSES[1]}" in shown
    rows = [*csv.DictReader((out / "findings.csv").open())]
    names = [{Path(row["file"]).name, Path(row["other"]).name} for row in rows if row["finding"] == DUPLICATE]
    assert {"04.png", "copy.png"} in names
    with Image.open(out / "near-duplicate.png") as sheet:
        assert sheet.size[0] > 96 * 5
    for words in (["--out", str(out)], ["--model", run, "--out", str(out)], ["--model", "nowhere"]):
        assert main(["data", "check", photos, *words]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
