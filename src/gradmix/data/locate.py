"""From what the user calls a data set to the files and the reader for them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UserError, choose
from .archives import content_root, is_archive, unpacked
from .catalogue import KNOWN_SETS, KnownSet, known_set
from .hub import fetch
from .readers import READERS, SPLIT_NAMES, UNDIVIDED, Reader, split_called
from .roots import data_root as resolve_root


@dataclass(frozen=True)
class Located:
    """A data set that is there."""

    path: Path
    reader: Reader
    splits: tuple[str, ...]
    known: KnownSet | None = None
    archive: Path | None = None  # what ``path`` was unpacked from

    @property
    def name(self) -> str:
        return self.known.name if self.known else str(self.archive or self.path)

    @property
    def test_split(self) -> str | None:
        """The split to test on: the official one, else ``test``, else ``val``, else there is none."""
        official = (self.known.test_split,) if self.known else ()
        return next((split for split in (*official, "test", "val") if split in self.splits), None)

    def split(self, asked: str) -> str:
        """The reader's name of the split that was asked for."""
        split = asked if asked == UNDIVIDED else split_called(asked)
        if split == "test" and self.known and self.test_split:
            split = self.test_split
        if self.splits == (UNDIVIDED,) and split == "train":
            split = UNDIVIDED
        if split is None or split not in self.splits:
            raise UserError(f"{self.name} has no '{asked}' split: {self.path} has {', '.join(self.splits)}")
        return split


def locate(source: str | Path, data_root: str | Path | None = None) -> Located:
    """Find ``source``: the name of a known data set under the data root, or else a path.

    A folder that happens to be called like a known set is meant by "./mnist" or by a ``Path``.
    """
    known = known_set(source) if isinstance(source, str) and not {"/", os.sep} & set(source) else None
    if known is not None:
        return find_known(known, data_root) or _recognised(fetch(known, resolve_root(data_root)), known)
    path = Path(source).expanduser()
    if not path.exists():
        if len(path.parts) == 1 and not path.suffix:
            choose("folder or data set", str(source), KNOWN_SETS)
        raise UserError(f"no such file or folder: {path}")
    return _recognised(path)


def find_known(known: KnownSet, data_root: str | Path | None = None, unpack: bool = True) -> Located | None:
    """The first of its places under the data root that has something readable, if any."""
    for place in known.places:
        located = recognise(resolve_root(data_root) / place, known, unpack)
        if located is not None:
            return located
    return None


def recognise(path: Path, known: KnownSet | None = None, unpack: bool = True) -> Located | None:
    """The first reader that finds a split there, or else in what is unpacked from there."""
    for reader in READERS:
        splits = reader.splits(path)
        if splits:
            return Located(path, reader, tuple(sorted(splits, key=(*SPLIT_NAMES, UNDIVIDED).index)), known)
    if unpack and path.is_file() and is_archive(path):
        located = recognise(content_root(unpacked(path)), known, unpack=False)  # no archives in archives
        return replace(located, archive=path) if located else None
    return None


def _recognised(path: Path, known: KnownSet | None = None) -> Located:
    located = recognise(path, known)
    if located is None:
        formats = ", ".join((*(reader.FORMAT for reader in READERS), ".zip and .tar archives of these"))
        raise UserError(f"{path} has no images that can be read here (accepted: {formats})")
    return located
