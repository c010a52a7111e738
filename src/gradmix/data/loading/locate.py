"""Find the files of a data set, by name or path, and the reader for them; download known sets."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import UserError, choose, first_line
from ...files import wait_for_lock
from ..catalogue import KNOWN_SETS, KnownSet, known_set
from ..file_names import SPLIT_NAMES, UNDIVIDED, parse_split
from ..readers import READERS, UNLABELED_READERS, Reader
from ..readers.interface import refuse_damaged
from ..roots import data_root as resolve_root
from .archives import find_content_root, is_archive, unpack_archive


@dataclass(frozen=True)
class Located:
    """A data set that was found."""

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
        """Return the split to test on: the official one, else ``test``, else ``val``, else None."""
        official = (self.known.test_split,) if self.known else ()
        return next((split for split in (*official, "test", "val") if split in self.splits), None)

    def split(self, asked: str) -> str:
        """Return the reader's name of the split ``asked``."""
        split = asked if asked == UNDIVIDED else parse_split(asked)
        if split == "test" and self.known and self.test_split:
            split = self.test_split
        if self.splits == (UNDIVIDED,) and split == "train":
            split = UNDIVIDED
        if split is None or split not in self.splits:
            raise UserError(f"{self.name} has no '{asked}' split: {self.path} has {', '.join(self.splits)}")
        return split


def locate(source: str | Path, data_root: str | Path | None = None) -> Located:
    """Find ``source``: the name of a known data set under the data root, or else a path.

    A folder with the name of a known set is given as "./mnist" or as a ``Path``.
    """
    known = known_set(source) if isinstance(source, str) and not {"/", os.sep} & set(source) else None
    if known is not None:
        there = find_known(known, data_root)
        if there is not None:
            return there
        folder = _download(known, resolve_root(data_root))
        return find_known(known, data_root) or _recognize_or_raise(folder, known)
    path = Path(source).expanduser()
    if not path.exists():
        if len(path.parts) == 1 and not path.suffix:
            choose("folder or data set", str(source), KNOWN_SETS)
        raise UserError(f"no such file or folder: {path}")
    return _recognize_or_raise(path)


def find_known(known: KnownSet, data_root: str | Path | None = None, unpack: bool = True) -> Located | None:
    """Return the first of its paths under the data root that a reader accepts, or None."""
    for path in known.paths:
        located = recognize(resolve_root(data_root) / path, known, unpack)
        if located is not None:
            return located
    return None


def recognize(path: Path, known: KnownSet | None = None, unpack: bool = True) -> Located | None:
    """Return the first reader that finds a split at ``path``, or in the archive that ``path`` is."""
    data = path / known.inside if known and known.inside else path
    for reader in UNLABELED_READERS if known and known.unlabeled else READERS:
        with refuse_damaged(data):
            splits = reader.splits(data)
        if splits:
            return Located(data, reader, tuple(sorted(splits, key=(*SPLIT_NAMES, UNDIVIDED).index)), known)
    if unpack and path.is_file() and is_archive(path):
        located = recognize(
            find_content_root(unpack_archive(path)), known, unpack=False
        )  # no archives in archives
        return replace(located, archive=path) if located else None
    return None


def _recognize_or_raise(path: Path, known: KnownSet | None = None) -> Located:
    located = recognize(path, known)
    if located is None:
        formats = ", ".join((*(reader.FORMAT for reader in READERS), ".zip and .tar archives of these"))
        raise UserError(f"{path} has no images that can be read here (accepted: {formats})")
    return located


def _download(known: KnownSet, root: Path) -> Path:
    """Download ``known`` from the Hub into ``root``; the folder gets its name when it is complete."""
    missing = f"no {known.name} data in {root} (looked for {', '.join(known.paths)})"
    get = f", or get it with: gradmix data get {known.name}" if known.hub_repo else ""
    way_out = f"put it there, or say where it is with --data-root or GRADMIX_DATA{get}"
    if known.hub_repo is None:
        raise UserError(f"{missing}; {way_out}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError(
            f"{missing}; {way_out}, or install gradmix[hub], which downloads {known.hub_repo} from the Hub"
        ) from None
    part, folder = root / f".{known.name}.part", root / known.name
    try:
        root.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(root / f".{known.name}.lock", f"waiting for another download of {known.name}"):
            if not folder.is_dir():
                # Always the same folder, so that an interrupted download continues.
                snapshot_download(
                    known.hub_repo, repo_type="dataset", allow_patterns=[known.hub_files], local_dir=part
                )
                part.rename(folder)
    except Exception as error:  # errors of the Hub's client, of requests, of the system
        failed = f"{known.hub_repo} could not be downloaded from the Hub ({first_line(error)})"
        raise UserError(f"{missing}, and {failed}; {way_out}") from error
    return folder
