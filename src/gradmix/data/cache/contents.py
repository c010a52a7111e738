"""What the cache folder holds, how it stays below a size, and how to delete it.

Everything in it can be computed again. Of bounded kinds ("decoded", "features") an entry is one file, and the
least recently used are deleted first. Using an entry sets its time of change to now, because access times are
switched off on many systems. Deleting an entry that another process reads is safe: that process has it open.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError
from ...files import try_lock
from ..roots import cache_root

_DEFAULT_GB = 8.0
_MAX_WRITE_SECONDS = 3600.0  # a temporary file older than this belongs to a process that was killed
# Nothing else is deleted: where GRADMIX_CACHE is not set, data sets may lie in the same folder.
KINDS = {
    "decoded": "images of small folders, decoded",
    "pixels": "images of large folders, decoded",
    "unpacked": "archives, unpacked",
    "features": "features of images that a model has seen",
}


@dataclass(frozen=True)
class CacheFolder:
    """One kind of cache entries; ``bounded``: the least recently used are deleted automatically."""

    kind: str
    about: str
    path: Path
    entries: int
    n_bytes: int
    bounded: bool


def cache_contents() -> list[CacheFolder]:
    """Return the folder of every kind, empty ones included."""
    found = []
    for kind, about in KINDS.items():
        path = cache_root() / kind
        entries = [p for p in path.iterdir() if not p.name.startswith(".")] if path.is_dir() else []
        n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        bounded = kind in ("decoded", "features")
        found.append(CacheFolder(kind, about, path, len(entries), n_bytes, bounded))
    return found


def clear_cache() -> int:
    """Delete all entries and return the number of bytes freed. Images mapped by a training stay readable.

    Entries that another process is filling stay, and so do the lock files.
    """
    before = sum(folder.n_bytes for folder in cache_contents())
    for folder in cache_contents():
        for name in _names(folder.path):
            if folder.bounded:  # files that get their name when they are whole
                (folder.path / name).unlink(missing_ok=True)
                continue
            with try_lock(folder.path / f".{name}.lock") as acquired:
                if acquired:
                    shutil.rmtree(folder.path / name, ignore_errors=True)
                    shutil.rmtree(folder.path / f".{name}.part", ignore_errors=True)
    return before - sum(folder.n_bytes for folder in cache_contents())


def _names(path: Path) -> set[str]:
    """Return the names of the entries in ``path``, also of those that are not complete."""
    if not path.is_dir():
        return set()
    there = {entry.name for entry in path.iterdir()}
    whole = {name for name in there if not name.startswith(".")}
    return whole | {name[1:].removesuffix(".part") for name in there if name.endswith(".part")}


def cache_limit() -> int:
    """Return the bytes allowed per kind: $GRADMIX_CACHE_GB gigabytes, by default 8; 0 keeps none."""
    given = os.environ.get("GRADMIX_CACHE_GB", "")
    try:
        gigabytes = float(given) if given else _DEFAULT_GB
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < 2**40:
        raise UserError(f"GRADMIX_CACHE_GB must be a number of gigabytes, not '{given}'")
    return int(gigabytes * 2**30)


def mark_used(entry: Path) -> None:
    """Record that ``entry`` was used just now."""
    with suppress(OSError):  # read-only, or deleted meanwhile: it may only be evicted earlier
        os.utime(entry)


def make_room(folder: Path, limit: int | None = None) -> None:
    """Delete the least recently used files of ``folder`` until the rest takes ``limit`` bytes at most.

    Temporary files of killed processes are deleted too. Files that cannot be deleted stay.
    """
    limit = cache_limit() if limit is None else limit
    kept = 0
    for used, size, file in sorted(_files(folder), reverse=True):
        kept += size
        abandoned = file.suffix == ".part" and time.time() - used > _MAX_WRITE_SECONDS
        if abandoned or (kept > limit and file.suffix != ".part"):
            kept -= size
            try:
                file.unlink(missing_ok=True)
            except OSError:
                kept += size


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """Return (last used, bytes, path) of the files in ``folder``; other processes may change it meanwhile."""
    found = []
    for file in folder.iterdir() if folder.is_dir() else ():
        try:
            stat = file.stat()
        except OSError:
            continue
        if file.is_file():
            found.append((stat.st_mtime, stat.st_size, file))
    return found
