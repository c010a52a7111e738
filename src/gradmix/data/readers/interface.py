"""The interface of a reader: its options, its result, its functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..decoding import BadImage
from ..imageset import ImageSet


@dataclass(frozen=True)
class ReadOptions:
    """Options of a reader that decodes images; None leaves the choice to the reader.

    ``fresh`` forbids the cache: the files themselves are to be decoded. ``mapped`` says whether the pixels
    stay on disk where the reader can do that; None leaves it to their size.
    """

    size: int | None = None
    channels: int | None = None
    fresh: bool = False
    mapped: bool | None = None


@dataclass(frozen=True, eq=False)
class ReadResult:
    """The images that could be read, those that could not, and the other files there, counted by ending."""

    images: ImageSet
    bad: tuple[BadImage, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)


class Reader(Protocol):
    """A module that reads one format."""

    FORMAT: str  # for people: "MNIST idx files"

    @staticmethod
    def splits(path: Path) -> tuple[str, ...]:
        """Return the splits found at ``path``; none if it is not of this format."""

    @staticmethod
    def count(path: Path, split: str) -> int:
        """Return the number of images in one of these splits, without decoding them."""

    @staticmethod
    def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
        """Read one of these splits."""
