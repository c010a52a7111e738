"""The data sets known by name: their paths, classes, and address on the Hub."""

from __future__ import annotations

from dataclasses import dataclass

from .protocols import published_splits

_DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class KnownSet:
    """A data set with a name.

    ``paths`` are looked for under the data root, in this order. ``class_names`` fixes the order of the
    labels (None: as the files have it). ``test_split`` is the split that serves as labelled test set.
    """

    name: str
    paths: tuple[str, ...]
    class_names: tuple[str, ...] | None = None
    test_split: str = "test"
    hub_repo: str | None = None
    hub_files: str = "*.parquet"


KNOWN_SETS = {
    known.name: known
    for known in (
        KnownSet("mnist", ("mnist", "MNIST"), _DIGITS, hub_repo="ylecun/mnist"),
        KnownSet(
            "cifar10",
            ("cifar10", "CIFAR10", "cifar-10", "cifar-10-batches-py", "cifar-10-python.tar.gz"),
            tuple(published_splits()["cifar10_names"]),
            hub_repo="uoft-cs/cifar10",
        ),
        KnownSet(
            "cifar100",
            ("cifar100", "CIFAR100", "cifar-100", "cifar-100-python", "cifar-100-python.tar.gz"),
            hub_repo="uoft-cs/cifar100",
        ),
        KnownSet(
            "svhn",
            ("svhn", "SVHN"),
            _DIGITS,
            hub_repo="ufldl-stanford/svhn",
            hub_files="cropped_digits/*.parquet",
        ),
        KnownSet(
            "tiny-imagenet",
            ("tiny-imagenet", "tiny-imagenet-200", "tinyimagenet", "TinyImageNet", "tiny-imagenet-200.zip"),
            tuple(published_splits()["tinyimagenet_wnids"]),
            test_split="val",  # the official test images have no labels
            hub_repo="zh-plus/tiny-imagenet",
        ),
        KnownSet("mini-imagenet", ("mini-imagenet", "miniimagenet"), test_split="val"),
        KnownSet("imagenet100", ("imagenet100", "ImageNet100", "imagenet-100"), test_split="val"),
    )
}


def known_set(name: str) -> KnownSet | None:
    """Return the data set called ``name``, in any spelling, or None.

    >>> known_set("TinyImageNet").name
    'tiny-imagenet'
    """
    return {_plain(known): KNOWN_SETS[known] for known in KNOWN_SETS}.get(_plain(name))


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
