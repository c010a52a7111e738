from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gradmix.data import Split, custom_split, open_set_data
from gradmix.data.open_set import draw_held_out, rank_in_class
from gradmix.errors import UserError

NAMES = ("ant", "bee", "cat", "dog")


def numbered(classes: np.ndarray, start: int) -> np.ndarray:
    """3 x 3 images that can be told apart: filled with class * 50 + a running number."""
    values = (classes * 50 + start + np.arange(len(classes)) % 20).astype(np.uint8)
    return np.broadcast_to(values[:, None, None], (len(classes), 3, 3)).copy()


@pytest.fixture
def with_test(tmp_path: Path) -> str:
    train, test = np.arange(40) % 4, np.arange(20) % 4
    np.savez(
        tmp_path / "zoo.npz",
        x_train=numbered(train, 0),
        y_train=train,
        x_test=numbered(test, 25),
        y_test=test,
        class_names=NAMES,
    )
    return str(tmp_path / "zoo.npz")


@pytest.fixture
def without_test(tmp_path: Path) -> str:
    labels = np.arange(40) % 4
    np.savez(tmp_path / "zoo.npz", images=numbered(labels, 0), labels=labels, class_names=NAMES)
    return str(tmp_path / "zoo.npz")


def classes_seen(images: torch.Tensor) -> set[int]:
    return set((images[:, 0, 0, 0] // 50).tolist())


def test_official_splits_are_used(with_test: str) -> None:
    split = custom_split(with_test, NAMES, known=["dog", "bee"])
    data = open_set_data(split)
    assert data.split is split
    assert data.train.class_names == data.test_known.class_names == ("dog", "bee")
    assert (len(data.train), len(data.test_known), len(data.test_unknown)) == (20, 10, 10)
    for part in (data.train, data.test_known):
        assert ((part.images[:, 0, 0, 0] // 50) == torch.where(part.labels == 0, 3, 1)).all()
    assert classes_seen(data.test_unknown.images) == {0, 2}
    assert data.test_unknown.labels.unique().tolist() == [-1]
    assert int((data.train.images[:, 0, 0, 0] % 50).max()) < 25 <= int((data.test_known.images % 50).min())


def test_a_fifth_is_held_out_where_there_is_no_test_split(without_test: str) -> None:
    split = custom_split(without_test, NAMES, n_known=2, seed=3)
    data = open_set_data(split)
    assert (len(data.train), len(data.test_known), len(data.test_unknown)) == (16, 4, 20)
    assert not set(data.train.sources) & set(data.test_known.sources)
    assert not classes_seen(data.train.images) & classes_seen(data.test_unknown.images)
    assert open_set_data(split).test_known.sources == data.test_known.sources
    assert data.test_known.counts() == dict.fromkeys(data.train.class_names, 2)


def test_limit_size_and_channels(with_test: str) -> None:
    split = custom_split(with_test, NAMES, known=["dog", "bee"])
    data = open_set_data(split, size=4, channels=3, limit_per_class=2)
    assert set(data.train.counts().values()) == set(data.test_known.counts().values()) == {2}
    assert len(data.test_unknown) == 4
    assert classes_seen(data.test_unknown.images) == {0, 2}
    for part in (data.train, data.test_known, data.test_unknown):
        assert part.images.shape[1:] == (3, 4, 4)
    with pytest.raises(UserError, match="at least 1"):
        open_set_data(split, limit_per_class=0)


def test_unknowns_of_another_set_look_like_the_training_images(with_test: str, photos: Path) -> None:
    split = Split("own", "own", 0, with_test, (0, 1), str(photos), ("dog",))
    data = open_set_data(split)
    assert len(data.test_unknown) == 3
    assert data.test_unknown.images.shape[1:] == data.train.images.shape[1:]
    assert all(source.startswith("dog/") for source in data.test_unknown.sources)


def test_test_folders_are_read_in_the_size_of_the_training_images(
    tmp_path: Path, save_image: Callable[..., None]
) -> None:
    for i in range(2):
        for name in ("a", "b", "c"):
            save_image(tmp_path / "zoo" / "train" / name / f"{i}.png", 20, 20)
            save_image(tmp_path / "zoo" / "val" / name / f"{i}.png", 30, 40, "L")
    data = open_set_data(custom_split(str(tmp_path / "zoo"), ("a", "b", "c"), known=["a", "b"]))
    assert data.test_known.images.shape == (4, 3, 20, 20)
    assert data.test_unknown.images.shape == (2, 3, 20, 20)


def test_classes_that_are_missing(with_test: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no class 'yak'"):
        open_set_data(Split("own", "own", 0, with_test, ("ant", "yak"), with_test, ("dog",)))
    with pytest.raises(UserError, match="no class 7"):
        open_set_data(Split("own", "own", 0, with_test, (0, 7), with_test, (1,)))
    labels = np.zeros(4, int)
    np.savez(tmp_path / "few.npz", images=numbered(labels, 0), labels=labels, class_names=NAMES)
    with pytest.raises(UserError, match=r"few.npz, train: there are no images of class 'bee'"):
        open_set_data(custom_split(str(tmp_path / "few.npz"), NAMES, known=["ant", "bee"]))


def test_rank_in_class_is_the_obvious_count() -> None:
    labels = torch.randint(0, 5, (200,), generator=torch.Generator().manual_seed(0))
    expected = [labels[:i].eq(labels[i]).sum().item() for i in range(200)]
    assert rank_in_class(labels).tolist() == expected
    assert rank_in_class(labels[:0]).tolist() == []


def test_held_out_share_per_class() -> None:
    labels = torch.tensor([0] * 50 + [1] * 10 + [2] * 2)
    mask = draw_held_out(labels, 0.2, seed=1)
    assert torch.bincount(labels[mask]).tolist() == [10, 2, 1]
    assert not torch.equal(mask, draw_held_out(labels, 0.2, seed=2))
    with pytest.raises(UserError, match="single image"):
        draw_held_out(torch.tensor([0, 0, 1]), 0.2, seed=0)
