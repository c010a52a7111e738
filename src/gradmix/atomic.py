"""Files that are either whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from .errors import UserError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then move it there in one step.

    A reader sees the old file or the new one, never a part; a full disk or a kill leaves the old one.
    """
    part: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        os.close(handle)
        part = Path(name)
        write(part)
        with open(part, "rb") as f:
            os.fsync(f.fileno())
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, path)
    except OSError as error:
        raise UserError(f"could not write {path}: {error.strerror or error}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically, as UTF-8.

    File names may hold bytes that are not UTF-8; they become escapes, which in JSON mean the same bytes.
    """

    def write(part: Path) -> None:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")

    write_atomically(path, write)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
