"""Which images are to be answered for, in which order: a list on disk, for it may be longer than memory.

It is made before the first image is read, so that their number is known, that a list from a pipe can be
walked like any other, and that files which come or go meanwhile change nothing. ``digest`` names the list:
work that was stopped goes on only where it is the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from ..data.archives import is_archive, unpacked
from ..data.readers.image_files import is_hidden, is_image_name
from ..errors import UserError


@dataclass(frozen=True)
class Input:
    """An image to answer for: what it is called in the answers (always valid UTF-8), and its file."""

    name: str
    path: Path


class Inputs:
    """The images of files, folders and archives, or of a list; one reader at a time."""

    def __init__(self, found: Iterable[Input]) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object
        weakref.finalize(self, _close, self._file)
        digest = hashlib.sha256()
        self.count = 0
        for item in found:
            # JSON's escapes keep a line break or a stray byte in a name from breaking the list.
            line = json.dumps([item.name, str(item.path)]).encode()
            self._write(line + b"\n")
            digest.update(json.dumps(item.name).encode() + b"\n")
            self.count += 1
        self._write(b"")
        self.digest = digest.hexdigest()

    def _write(self, line: bytes) -> None:
        """Add to the list; nothing flushes."""
        try:
            self._file.write(line) if line else self._file.flush()
        except OSError as error:
            raise UserError(
                f"the list of images does not fit into {tempfile.gettempdir()} ({error.strerror}); "
                "TMPDIR can name another place"
            ) from error

    @staticmethod
    def of_paths(paths: Sequence[Path]) -> Inputs:
        """Files as given, folders and archives searched through, each sorted by path."""
        for path in paths:  # all of them first: a misspelt one should not wait for the others
            if not path.exists():
                raise UserError(f"no such file or folder: {path}")
        return Inputs(item for path in paths for item in _below(path))

    @staticmethod
    def of_lines(lines: Iterable[bytes], where: str) -> Inputs:
        """One file a line; one that is not there is an unreadable image, not a mistake."""
        names = (os.fsdecode(line.rstrip(b"\r\n")) for line in lines)
        inputs = Inputs(Input(_shown(name), Path(name)) for name in names if name)
        if not inputs.count:
            raise UserError(f"{where} names no images; give one file a line")
        return inputs

    def batches(self, size: int, first: int = 0) -> Iterator[list[Input]]:
        """All from number ``first`` on, ``size`` at a time."""
        self._file.seek(0)
        lines = islice(self._file, first, None)
        while some := list(islice(lines, size)):
            yield [Input(name, Path(path)) for name, path in map(json.loads, some)]


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # of a disk that was full: that was said before
        file.close()


def images_below(folder: str) -> Iterator[str]:
    """The paths of :func:`~gradmix.data.readers.image_files.images_under`, holding one folder at a time."""
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries)
    except OSError as error:
        raise UserError(f"{folder} may not be listed ({error.strerror})") from error
    for name, is_folder, is_link in found:
        path = os.path.join(folder, name)  # noqa: PTH118 - a Path for each of a million would take longer
        if is_folder:
            if not is_hidden(name) and not is_link:
                yield from images_below(path)
        elif is_image_name(name):
            yield path


def _below(path: Path) -> Iterator[Input]:
    archive = path.is_file() and is_archive(path)
    if not archive and not path.is_dir():
        yield Input(_shown(str(path)), path)
        return
    folder = str(unpacked(path)) if archive else str(path)
    empty = True
    for found in images_below(folder):
        empty = False
        name = str(path / found[len(folder) + 1 :]) if archive else str(Path(found))
        yield Input(_shown(name), Path(found))
    if empty:
        raise UserError(f"no images in {path}")


def _shown(name: str) -> str:
    """A file's name as valid UTF-8; bytes that are not become escapes.

    >>> _shown("gr\\udcfcn.png") == r"gr\\udcfcn.png"
    True
    """
    return name.encode("utf-8", "backslashreplace").decode()
