"""A fitted classifier, and folders of images for it."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from PIL import Image

from gradmix import OpenSetClassifier
from gradmix.data import ImageSet
from tests.test_estimator import arrays, quick
from tests.training.tiny import CLASSES, tiny_images


@pytest.fixture(scope="module")
def fitted() -> OpenSetClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quick().fit(*arrays(16))


@pytest.fixture
def changeable(fitted: OpenSetClassifier) -> OpenSetClassifier:
    """One of its own for a test that changes it."""
    copy = quick()
    copy.recognizer_, copy.known_classes_ = fitted.recognizer_, fitted.known_classes_
    copy.unknown_label_ = fitted.unknown_label_
    return copy


def crosses(each: int = 12, seed: int = 0) -> ImageSet:
    return tiny_images(each, ("cross",), seed=seed)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """known/ (divided: other images in train), val/ and others/, as files."""
    root = tmp_path_factory.mktemp("photos")
    sets = {
        "known/test": tiny_images(8, seed=5),
        "known/train": tiny_images(3, seed=6),
        "whole": tiny_images(8, seed=5),
        "fresh": tiny_images(10, seed=7),
    }
    for name, images in sets.items():
        for i, (pixels, label) in enumerate(zip(images.images[:], images.labels.tolist(), strict=True)):
            wrong = name == "known/train"  # nothing there is right, so that nobody measures on it unseen
            folder = root / name / CLASSES[(label + wrong) % 3]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / f"{i}.png")
    for i, pixels in enumerate(crosses().images[:]):
        (root / "others").mkdir(exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(root / "others" / f"{i}.png")
    return root
