"""The list of images to predict, in order. It is kept on disk, because it may be larger than memory.

The list is complete before the first image is read: their number is known, a list from a pipe can be read
twice, and files that appear or vanish meanwhile change nothing. ``digest`` identifies the list: an
interrupted prediction resumes only with the same one.
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

from ..data import is_archive, is_hidden, is_image_name, unpack_archive
from ..errors import UserError


@dataclass(frozen=True)
class Input:
    """An image to predict: its name in the answers (always valid UTF-8), and its file."""

    name: str
    path: Path


class Inputs:
    """The images of files, folders and archives, or of a list. Only one reader at a time."""

    def __init__(self, found: Iterable[Input]) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
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
        """Append a line to the list; an empty one flushes."""
        try:
            self._file.write(line) if line else self._file.flush()
        except OSError as error:
            raise UserError(
                f"the list of images does not fit into {tempfile.gettempdir()} ({error.strerror}); "
                "TMPDIR can name another place"
            ) from error

    @staticmethod
    def from_paths(paths: Sequence[Path]) -> Inputs:
        """List files as given, and the images in folders and archives, sorted by path."""
        for path in paths:  # before any is searched: report a misspelt path at once
            if not path.exists():
                raise UserError(f"no such file or folder: {path}")
        return Inputs(item for path in paths for item in _find_images(path))

    @staticmethod
    def from_lines(lines: Iterable[bytes], where: str) -> Inputs:
        """Read one file name per line; a missing file is an unreadable image, not an error."""
        names = (os.fsdecode(line.rstrip(b"\r\n")) for line in lines)
        inputs = Inputs(Input(_to_utf8(name), Path(name)) for name in names if name)
        if not inputs.count:
            raise UserError(f"{where} names no images; give one file per line")
        return inputs

    def batches(self, size: int, first: int = 0) -> Iterator[list[Input]]:
        """Yield the inputs from number ``first`` on, ``size`` at a time."""
        self._file.seek(0)
        lines = islice(self._file, first, None)
        while some := list(islice(lines, size)):
            yield [Input(name, Path(path)) for name, path in map(json.loads, some)]


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # the disk was full, which has been reported
        file.close()


def walk_images(folder: str) -> Iterator[str]:
    """Yield what :func:`~gradmix.data.readers.image_files.find_images` lists, with one folder in memory."""
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries)
    except OSError as error:
        raise UserError(f"{folder} may not be listed ({error.strerror})") from error
    for name, is_folder, is_link in found:
        path = os.path.join(folder, name)  # noqa: PTH118 - a Path for each of a million would take longer
        if is_folder:
            if not is_hidden(name) and not is_link:
                yield from walk_images(path)
        elif is_image_name(name):
            yield path


def _find_images(path: Path) -> Iterator[Input]:
    archive = path.is_file() and is_archive(path)
    if not archive and not path.is_dir():
        yield Input(_to_utf8(str(path)), path)
        return
    folder = str(unpack_archive(path)) if archive else str(path)
    empty = True
    for found in walk_images(folder):
        empty = False
        name = str(path / found[len(folder) + 1 :]) if archive else str(Path(found))
        yield Input(_to_utf8(name), Path(found))
    if empty:
        raise UserError(f"no images in {path}")


def _to_utf8(name: str) -> str:
    """Return a file name as valid UTF-8, with escapes for the other bytes.

    >>> _to_utf8("gr\\udcfcn.png") == r"gr\\udcfcn.png"
    True
    """
    return name.encode("utf-8", "backslashreplace").decode()
