"""Folders in the cache that take long to fill: filled by one process, and whole or absent for all others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError
from ..locks import held


def whole_folder(
    folder: Path, fill: Callable[[Path], None], *, resumable: bool = False, fresh: bool = False
) -> Path:
    """``folder``, after ``fill(part)`` has filled it as ``part`` if it was not there.

    The part gets its name in one step when ``fill`` has returned: a kill leaves a part that nothing reads.
    The next process to come takes it up where it is (``resumable``) or starts anew. Processes that want
    the folder meanwhile wait. ``fresh`` fills it again though it is there.
    """
    if folder.is_dir() and not fresh:
        return folder
    part = folder.with_name(f".{folder.name}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".{folder.name}.lock")
        with held(lock, f"waiting for the process that fills {folder}"):
            if folder.is_dir() and not fresh:
                return folder  # the process that was waited for has filled it
            if fresh or not resumable:
                shutil.rmtree(part, ignore_errors=True)
            part.mkdir(exist_ok=True)
            fill(part)
            if fresh:
                shutil.rmtree(folder, ignore_errors=True)
            os.rename(part, folder)  # noqa: PTH104 (as os.replace, it says what it does)
            sync_folder(folder.parent)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"could not write {folder}: {reason}; GRADMIX_CACHE can name another place"
        ) from error
    return folder


def need_space(where: Path, n_bytes: int, what_for: str) -> None:
    """Refuse before the work rather than after hours of it."""
    free = shutil.disk_usage(where).free
    if n_bytes > free:
        raise UserError(
            f"{what_for} needs {n_bytes / 2**30:.1f} GB in the cache, but {where} has {free / 2**30:.1f} GB "
            "free; GRADMIX_CACHE can name another place"
        )


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` outlive a power cut."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
