"""The model files of before the last changes, so that a change can be undone.

Beside ``model.safetensors`` lies, hidden, ``.model.safetensors.before-T-S`` for each of the last changes,
where T and S are the time stamp and size of the file that the change made: so each takes back one change, and
none that somebody else made since. They are links to the old files where the file system has
links, and cost no time; a process that is killed leaves the old model or the new one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..errors import UserError

MOST_KEPT = 5


def keep(file: Path) -> Path:
    """Keep the file as it is, under a name that :func:`settle` changes; call it under the model's lock."""
    kept = _name(file, "next")
    try:
        kept.unlink(missing_ok=True)
        try:
            os.link(file, kept)
        except OSError:  # a file system without links
            shutil.copy2(file, kept)
    except OSError as error:
        raise UserError(f"cannot keep {file} for an undo: {error.strerror or error}") from error
    return kept


def settle(file: Path) -> None:
    """Name what was kept after the file that has replaced it; drop the oldest beyond :data:`MOST_KEPT`."""
    try:
        before = _name(file, _stamp(file))
        _name(file, "next").replace(before)
        others = [old for old in _all(file) if old != before]
        for old in sorted(others, key=lambda old: old.stat().st_mtime_ns)[: 1 - MOST_KEPT]:
            old.unlink()
    except OSError:
        pass  # then this change cannot be undone


def can_undo(file: Path) -> bool:
    """Return whether the file of before the last change is there."""
    try:
        return _name(file, _stamp(file)).is_file()
    except OSError:
        return False


def undo(file: Path) -> None:
    """Put the file of before the last change in place of ``file``; call it under the model's lock."""
    if not can_undo(file):
        raise UserError("there is nothing to undo: the last change of the model was not made here")
    try:
        _name(file, _stamp(file)).replace(file)
    except OSError as error:
        raise UserError(f"could not write {file}: {error.strerror or error}") from error


def _stamp(file: Path) -> str:
    found = file.stat()
    return f"{found.st_mtime_ns}-{found.st_size}"


def _name(file: Path, stamp: str) -> Path:
    return file.with_name(f".{file.name}.before-{stamp}")


def _all(file: Path) -> list[Path]:
    return [old for old in file.parent.glob(f".{file.name}.before-*") if not old.name.endswith("-next")]
