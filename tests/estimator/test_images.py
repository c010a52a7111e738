"""One image is one image, whatever it comes as."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from gradmix import OpenSetClassifier
from gradmix.data import ImageSet
from gradmix.errors import UserError
from tests.test_estimator import arrays, quick
from tests.training.tiny import CLASSES

pytestmark = pytest.mark.filterwarnings("ignore:recipe frozen without trained weights")


def test_one_image_gives_one_answer(fitted: OpenSetClassifier, folders: Path) -> None:
    file = folders / "others" / "0.png"
    pixels = np.asarray(Image.open(file))
    expected = fitted.predict(pixels[None])
    assert expected.shape == (1,)
    one: list[Any] = [
        file,
        str(file),
        Image.open(file),
        pixels,
        torch.from_numpy(pixels.copy()),
        torch.from_numpy(pixels.copy()).permute(2, 0, 1),
        file.read_bytes(),
        io.BytesIO(file.read_bytes()),
        [file],
        iter([file]),
        pd.Series([str(file)]),
    ]
    scores = fitted.score_samples(pixels[None])
    for image in one:
        if isinstance(image, io.BytesIO | Iterator):  # read once
            assert np.array_equal(fitted.score_samples(image), scores)
            continue
        assert np.array_equal(fitted.predict(image), expected)
        assert np.array_equal(fitted.score_samples(image), scores)
        assert fitted.predict_proba(image).shape == (1, 4)
        assert fitted.decision_function(image).shape == (1, 4)
        assert len(fitted.explain(image)) == len(fitted.predict_table(image)) == 1
    assert fitted.predict(pixels[..., 0]).shape == (1,)  # gray
    assert fitted.score(pixels, ["bar"]) in (0.0, 1.0)


def test_fit_takes_tables_and_iterators(folders: Path) -> None:
    files = sorted((folders / "fresh").rglob("*.png"))
    table = pd.DataFrame(
        {"path": [str(file) for file in files], "class": [file.parent.name for file in files]}
    )
    expected = quick().fit(list(table["path"]), list(table["class"])).predict_proba(files)
    pictures = [Image.open(file) for file in files]
    for X, y in (
        (table["path"], table["class"]),
        (pictures, table["class"]),
        (pd.Series(pictures), table["class"].astype("category")),
        ((Image.open(file) for file in files), iter(table["class"])),
        ([file.read_bytes() for file in files], table[["class"]]),
    ):
        clf = quick().fit(X, y)
        assert clf.classes_.tolist() == [*CLASSES, "unknown"]
        assert np.array_equal(clf.predict_proba(files), expected)


def test_iterators_are_answered_part_by_part(
    fitted: OpenSetClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradmix.data.any_images._ITEMS_AT_ONCE", 16)
    pictures, names = arrays(16)
    taken, seen = [], []

    def give() -> Iterator[Any]:
        for picture in pictures:
            taken.append(1)
            yield picture

    ask = type(fitted.recognizer_).outputs

    def outputs(self: Any, images: ImageSet, *words: Any, **more: Any) -> Any:
        seen.append((len(images), len(taken)))
        return ask(self, images, *words, **more)

    monkeypatch.setattr(type(fitted.recognizer_), "outputs", outputs)
    answers = fitted.predict(give())
    assert seen == [(16, 16), (16, 32), (16, 48)]  # never more than a part in memory
    assert np.array_equal(answers, fitted.predict(pictures))
    assert fitted.score(give(), names) == fitted.score(pictures, names)
    np.testing.assert_allclose(fitted.predict_proba(give()), fitted.predict_proba(pictures), atol=1e-5)
    assert len(fitted.predict_table(give())) == len(fitted.explain(give())) == 48


def test_addresses_are_refused(fitted: OpenSetClassifier) -> None:
    for call in (fitted.predict, fitted.explain, fitted.discover, quick().fit, fitted.score):
        with pytest.raises(UserError, match=r"https://example.org/a is an address.*download it first"):
            call("https://example.org/a")


def test_a_divided_folder_is_scored_on_its_test_part(fitted: OpenSetClassifier, folders: Path) -> None:
    files = sorted((folders / "known" / "test").rglob("*.png"))
    right = np.mean(fitted.predict(files) == [file.parent.name for file in files])
    assert fitted.score(folders / "known") == right > 0.5


def test_labels_say_how_many_images_are_scored(fitted: OpenSetClassifier) -> None:
    pictures, names = arrays(1)
    gray = pictures[..., 0]  # (3, 16, 16): of one color image, without the labels
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted.score(gray, names) == np.mean(fitted.predict(gray[..., None]) == names)
