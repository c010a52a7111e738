"""The interface of a reader: its options, its result, its functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ...errors import UserError, first_line
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


@contextmanager
def refuse_damaged(path: Path) -> Iterator[None]:
    """Turn whatever a file from elsewhere makes a reader raise in the block into one line about the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # parquet, .npz, .mat: their libraries raise dozens of kinds
        reason = f"{type(error).__name__}: {first_line(error)[:200]}"
        raise UserError(f"{path} cannot be read, it is damaged or no data set ({reason})") from error


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
