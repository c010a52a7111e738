"""The cache stays below a size: what was used longest ago goes first.

An entry is one file. Using it moves its time of change to now (access times are switched off on many
systems), so that the oldest time is the least recently used. Deleting an entry that another process is
reading is safe: it has the file open.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ..errors import UserError

_DEFAULT_GB = 8.0
_SECONDS_OF_A_WRITE = 3600.0  # a temporary file older than this belongs to a process that was killed


def cache_limit() -> int:
    """Bytes that entries of one kind may take: $GRADMIX_CACHE_GB gigabytes, by default 8; 0 keeps none."""
    given = os.environ.get("GRADMIX_CACHE_GB", "")
    try:
        gigabytes = float(given) if given else _DEFAULT_GB
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < 2**40:
        raise UserError(f"GRADMIX_CACHE_GB must be a number of gigabytes, not '{given}'")
    return int(gigabytes * 2**30)


def mark_used(entry: Path) -> None:
    """Note that ``entry`` was of use just now."""
    with suppress(OSError):  # read-only, or gone meanwhile: it only loses its place in the queue
        os.utime(entry)


def make_room(folder: Path, limit: int | None = None) -> None:
    """Delete the least recently used files of ``folder`` until the rest takes ``limit`` bytes at most.

    What killed processes left behind goes too. Files that cannot be deleted stay.
    """
    limit = cache_limit() if limit is None else limit
    kept = 0
    for used, size, file in sorted(_files(folder), reverse=True):
        kept += size
        abandoned = file.suffix == ".part" and time.time() - used > _SECONDS_OF_A_WRITE
        if abandoned or (kept > limit and file.suffix != ".part"):
            kept -= size
            try:
                file.unlink(missing_ok=True)
            except OSError:
                kept += size


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """(last used, bytes, path) of the files in ``folder``; others may add and delete some meanwhile."""
    found = []
    for file in folder.iterdir() if folder.is_dir() else ():
        try:
            stat = file.stat()
        except OSError:
            continue
        if file.is_file():
            found.append((stat.st_mtime, stat.st_size, file))
    return found
