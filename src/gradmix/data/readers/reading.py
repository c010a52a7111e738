"""What every reader takes and gives, and the names that splits go by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..decode_many import BadImage
from ..imageset import ImageSet

# A source that is not divided has this one split; it may be asked for as "train" too.
UNDIVIDED = "all"

_SPELLINGS = {
    "training": "train",
    "testing": "test",
    "valid": "val",
    "validation": "val",
}
SPLIT_NAMES = ("train", "val", "test", "extra")


@dataclass(frozen=True)
class Wanted:
    """How the images should come out of a reader that decodes; None leaves it to the reader.

    ``fresh`` forbids the cache: the files themselves are to be decoded. ``mapped`` says whether the pixels
    stay on disk where the reader can do that; None leaves it to their size.
    """

    size: int | None = None
    channels: int | None = None
    fresh: bool = False
    mapped: bool | None = None


@dataclass(frozen=True, eq=False)
class Reading:
    """The images that could be read, and those that could not."""

    images: ImageSet
    bad: tuple[BadImage, ...] = ()


class Reader(Protocol):
    """A module that reads one format."""

    FORMAT: str  # for people: "MNIST idx files"

    @staticmethod
    def splits(path: Path) -> tuple[str, ...]:
        """The splits that are there; none if ``path`` is not of this format."""

    @staticmethod
    def count(path: Path, split: str) -> int:
        """The number of images in one of those splits, without decoding them."""

    @staticmethod
    def read(path: Path, split: str, wanted: Wanted) -> Reading:
        """One of those splits."""


def split_called(name: str) -> str | None:
    """The split that a file or folder name stands for, if any.

    >>> split_called("Validation"), split_called("cats")
    ('val', None)
    """
    name = name.lower()
    name = _SPELLINGS.get(name, name)
    return name if name in SPLIT_NAMES else None
