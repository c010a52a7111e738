"""Frost pictures and the published .npy files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gradmix.data.corruptions import corrupt, has_official, load_frost, load_official
from gradmix.data.corruptions.draws import Draws
from gradmix.data.corruptions.frost_pictures import FrostPictures
from gradmix.data.corruptions.weather import frost
from gradmix.errors import UserError


def one_colour(folder: Path, sizes: list[tuple[int, int]]) -> Path:
    """Pictures of the given (width, height), the first all 10, the next all 20 …"""
    folder.mkdir(parents=True)
    for i, size in enumerate(sizes, start=1):
        Image.new("RGB", size, (10 * i,) * 3).save(folder / f"frost{i}.png")
    return folder


def test_pictures_come_from_a_folder_and_the_sixth_is_not_used(tmp_path: Path) -> None:
    ice = load_frost(one_colour(tmp_path / "ice", [(40, 30)] * 6))
    assert not ice.generated
    assert [int(picture[0, 0, 0]) for picture in ice.pictures] == [10, 20, 30, 40, 50]
    assert ice.pictures[0].shape == (3, 30, 40)


def test_pictures_in_the_data_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_colour(tmp_path / "frost", [(40, 30)])
    monkeypatch.setenv("GRADMIX_DATA", str(tmp_path))
    assert load_frost().origin == str(tmp_path / "frost")


def test_generated_frost_says_so() -> None:
    assert load_frost().generated
    with pytest.warns(UserWarning, match="frost is generated"):
        corrupt(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "frost", 1)


def test_frost_is_a_weighted_sum_with_one_picture_an_image(tmp_path: Path) -> None:
    """Pictures of one colour and of different sizes, one of them too small: no cut-out crosses a border."""
    ice = load_frost(one_colour(tmp_path / "ice", [(200, 90), (50, 300), (4, 4)]))
    images = torch.full((60, 3, 16, 16), 0.5, dtype=torch.float64)
    laid = (frost(images, (0.8, 0.5, 0.3), Draws(0, "frost", 1, 0, 60), ice) - 0.4) / 0.5 * 255
    flat = laid.flatten(1)
    assert torch.allclose(flat.amin(1), flat.amax(1))
    assert set(flat[:, 0].round().int().tolist()) == {10, 20, 30}


def test_cut_outs_are_pieces_of_the_picture() -> None:
    picture = (
        torch.arange(20 * 30, dtype=torch.int64)
        .view(1, 20, 30)
        .remainder(251)
        .to(torch.uint8)
        .repeat(3, 1, 1)
    )
    images = torch.zeros(8, 3, 6, 6, dtype=torch.float64)
    laid = (frost(images, (1, 1, 1), Draws(0, "f", 1, 0, 8), FrostPictures((picture,))) * 255).round()
    pieces = picture.unfold(1, 6, 1).unfold(2, 6, 1).permute(1, 2, 0, 3, 4).reshape(-1, 3, 6, 6)
    for cut_out in laid:
        assert bool((pieces == cut_out).flatten(1).all(1).any())


def test_mistakes_with_pictures(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder of frost pictures"):
        load_frost(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no \.png or \.jpg"):
        load_frost(tmp_path)
    (tmp_path / "frost1.png").write_bytes(b"not a picture")
    with pytest.raises(UserError, match=r"frost1\.png"):
        load_frost(tmp_path)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Four images at five severities; image i of severity s is all 10 s + i."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    numbers = np.array([10 * s + i for s in range(1, 6) for i in range(4)], dtype=np.uint8)
    np.save(folder / "fog.npy", np.broadcast_to(numbers[:, None, None, None], (20, 6, 5, 3)))
    np.save(folder / "labels.npy", np.tile(np.arange(4, dtype=np.uint8), 5))
    return tmp_path


def test_published_files_are_read_by_severity(published: Path) -> None:
    images, labels = load_official(published, "fog", 3)
    assert images.shape == (4, 3, 6, 5)
    assert images[:, 0, 0, 0].tolist() == [30, 31, 32, 33]
    assert labels.tolist() == [0, 1, 2, 3]
    assert has_official(published, "fog")
    assert not has_official(published, "snow")


def test_mistakes_with_published_files(published: Path, save_pickle: Callable[[Path], None]) -> None:
    with pytest.raises(UserError, match=r"snow\.npy"):
        load_official(published, "snow", 1)
    with pytest.raises(UserError, match="did you mean 'fog'"):
        load_official(published, "foggy", 1)
    with pytest.raises(UserError, match="severity must be"):
        load_official(published, "fog", 6)
    np.save(published / "CIFAR-10-C" / "frost.npy", np.zeros((20, 6, 5), dtype=np.uint8))
    with pytest.raises(UserError, match="should hold uint8"):
        load_official(published, "frost", 1)
    save_pickle(published / "CIFAR-10-C" / "snow.npy")
    with pytest.raises(UserError, match=r"no plain \.npy array"):
        load_official(published, "snow", 1)
    np.save(published / "CIFAR-10-C" / "labels.npy", np.zeros(7, dtype=np.uint8))
    with pytest.raises(UserError, match="20 images but labels"):
        load_official(published, "fog", 1)


@pytest.fixture
def save_pickle() -> Callable[[Path], None]:
    """An .npy of Python objects, which only unpickling could read."""
    return lambda path: np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


@pytest.fixture
def real_root() -> Path:
    root = os.environ.get("GRADMIX_DATA")
    if not root or not (Path(root) / "frost").is_dir():
        pytest.skip("set GRADMIX_DATA to a folder with frost")
    return Path(root)


def test_the_real_pictures(real_root: Path) -> None:
    ice = load_frost(real_root / "frost")
    assert len(ice.pictures) == 5
    out = corrupt(torch.zeros(4, 3, 64, 64, dtype=torch.uint8), "frost", 5, frost=ice)
    assert float(out.double().mean()) > 30
