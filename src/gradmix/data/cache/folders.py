"""Fill a folder of the cache by one process; for all others it is complete or absent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ...errors import UserError
from ...files import sync_folder, wait_for_lock


def fill_folder(
    folder: Path, fill: Callable[[Path], None], *, resumable: bool = False, fresh: bool = False
) -> Path:
    """Return ``folder``; if it does not exist, let ``fill(part)`` fill a temporary folder and rename that.

    If the process is killed, the temporary folder stays, and nothing reads it. The next process continues it
    (``resumable``) or starts again. Processes that need the folder meanwhile wait. ``fresh`` fills it again
    although it exists.
    """
    if folder.is_dir() and not fresh:
        return folder
    part = folder.with_name(f".{folder.name}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".{folder.name}.lock")
        with wait_for_lock(lock, f"waiting for the process that fills {folder}"):
            if folder.is_dir() and not fresh:
                return folder  # filled by the process that held the lock
            if fresh or not resumable:
                shutil.rmtree(part, ignore_errors=True)
            part.mkdir(exist_ok=True)
            fill(part)
            if fresh:
                shutil.rmtree(folder, ignore_errors=True)
            os.rename(part, folder)  # noqa: PTH104
            sync_folder(folder.parent)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"could not write {folder}: {reason}; GRADMIX_CACHE can name another place"
        ) from error
    return folder


def check_free_space(where: Path, n_bytes: int, what_for: str) -> None:
    """Raise if ``where`` has less than ``n_bytes`` free, before the work begins."""
    free = shutil.disk_usage(where).free
    if n_bytes > free:
        raise UserError(
            f"{what_for} needs {n_bytes / 2**30:.1f} GB in the cache, but {where} has {free / 2**30:.1f} GB "
            "free; GRADMIX_CACHE can name another place"
        )
