"""Small data in the formats people have, made afresh for each test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """No test reads or writes the user's cache, nor finds the user's data, except those on real data."""
    if "real_root" not in request.fixturenames:
        monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("GRADMIX_DATA", str(tmp_path / "no-data"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def photos(tmp_path: Path, rng: np.random.Generator) -> Path:
    """photos/{cat,dog}/{0,1,2}.png, 10 x 8 in colour."""
    folder = tmp_path / "photos"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(rng.integers(0, 256, (8, 10, 3), np.uint8)).save(folder / name / f"{i}.png")
    return folder


@pytest.fixture
def save_image(rng: np.random.Generator) -> Callable[..., None]:
    """save_image(path, height=8, width=8, mode="RGB"): a random image, the folder made if need be."""

    def save(path: Path, height: int = 8, width: int = 8, mode: str = "RGB") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).convert(mode).save(path)

    return save
