"""The data sets themselves, where GRADMIX_DATA says they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from gradmix.data import (
    CLASSIC_PROTOCOLS,
    KNOWN_SETS,
    ImageFormat,
    find_identical,
    get_split,
    list_splits,
    load_images,
    load_unknown_sets,
    open_set_data,
)
from gradmix.data.inspection import list_data
from gradmix.data.protocols import published_splits

pytestmark = pytest.mark.slow  # the first time: later, decoded images come from the cache

WHOLE = {  # images per class of the official sets
    ("cifar10", "train"): {5000},
    ("cifar10", "test"): {1000},
    ("cifar100", "test"): {100},
    ("tiny-imagenet", "val"): {50},
}
SHAPES = {
    "mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
    "cifar100": (3, 32, 32),
    "svhn": (3, 32, 32),
    "tiny-imagenet": (3, 64, 64),
}
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


@pytest.fixture(scope="module")
def real_root() -> Path:
    root = os.environ.get("GRADMIX_DATA")
    if not root:
        pytest.skip("set GRADMIX_DATA to a folder with mnist, cifar10, cifar100, svhn, tiny-imagenet")
    return Path(root)


@pytest.mark.parametrize("name", SHAPES)
def test_every_split_loads(name: str, real_root: Path) -> None:
    for split in list_splits(name, data_root=real_root):
        images = load_images(name, split=split, data_root=real_root)
        assert tuple(images.images.shape[1:]) == SHAPES[name]
        known = KNOWN_SETS[name].class_names
        assert known is None or images.class_names == known
        if (name, split) in WHOLE:
            assert set(images.counts().values()) == WHOLE[name, split]
        assert 5 < images.images.float().mean() < 250


def test_mnist_is_mnist(real_root: Path) -> None:
    train, test = (load_images("mnist", split=split, data_root=real_root) for split in ("train", "test"))
    assert list(train.counts().values()) == MNIST_TRAIN
    assert list(test.counts().values()) == MNIST_TEST
    # Known of the original files: mean 0.1307 of white, and the first test digit is a 7.
    assert abs(train.images.float().mean() / 255 - 0.1307) < 1e-4
    assert int(test.labels[0]) == 7


def test_cifar10_has_its_known_mean(real_root: Path) -> None:
    train = load_images("cifar10", data_root=real_root)
    mean = train.images.float().mean((0, 2, 3)) / 255
    assert torch.allclose(mean, torch.tensor([0.4914, 0.4822, 0.4465]), atol=1e-4)


@pytest.mark.parametrize("protocol", CLASSIC_PROTOCOLS)
def test_protocol_sizes(protocol: str, real_root: Path) -> None:
    split = get_split(protocol, 0)
    data = open_set_data(split, data_root=real_root)
    sizes = published_splits()["test_set_sizes"].get(protocol)
    if sizes is not None:
        assert len(data.test_known) == sizes["test_known"]
        assert len(data.test_unknown) == sizes["test_unknown"]
        if protocol != "tinyimagenet":  # of which people may have a part of the training images
            assert len(data.train) == sizes["train_known"]
    else:
        whole = load_images(split.known_source, split="test", data_root=real_root)
        assert len(data.test_known) + len(data.test_unknown) == len(whole)
    assert data.train.class_names == data.test_known.class_names
    assert len(data.train.class_names) == len(split.known)
    assert min(data.train.counts().values()) > 0


def test_no_unknown_class_in_training(real_root: Path) -> None:
    split = get_split("mnist", 3)
    data = open_set_data(split, data_root=real_root)
    whole = load_images("mnist", data_root=real_root)
    original = dict(zip(whole.sources, whole.labels.tolist(), strict=True))
    for i, source in enumerate(data.train.sources):
        assert split.known[data.train.labels[i]] == original[source]


def test_list_counts_without_decoding(real_root: Path) -> None:
    listed = {listing.name: dict(listing.splits) for listing in list_data(real_root)}
    assert listed["mnist"] == {"train": 60_000, "test": 10_000}
    assert listed["cifar10"] == {"train": 50_000, "test": 10_000}


def test_openoods_sets_that_are_there(real_root: Path) -> None:
    sets, missing = load_unknown_sets("openood-cifar10", real_root, ImageFormat(32, 3), skip_missing=True)
    sizes = {unknown.name: len(unknown.images) for unknown in sets}
    assert (sizes["cifar100"], sizes["tiny-imagenet"], sizes["mnist"]) == (10_000, 10_000, 70_000)
    assert len(sets) + len(missing) == 6
    known = load_images("cifar10", split="test", data_root=real_root)
    # One image of the two data sets is the same: an automobile here, a bus there.
    assert find_identical(known, sets[0].images) == [(9345, 8422)]
