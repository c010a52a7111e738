"""Data sets as they are downloaded: a .zip or .tar, unpacked once into the cache folder and read from there.

An archive may be hostile. Only plain files and folders are written: a path that leaves the folder, a link or
a device is refused with its name, and so is an archive that unpacks to far more than its size.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO

from ...errors import UserError, first_line
from ...progress import progress
from ..cache.folders import check_free_space, fill_folder
from ..file_names import is_hidden, is_image_name, parse_split, refuse_path
from ..roots import cache_root

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MAX_MEMBERS = 20_000_000
# Images hardly shrink. Small archives may hold a gigabyte whatever their size, for blank or raw pixels do.
MAX_RATIO = 100
MIN_ALLOWED_BYTES = 2**30
_COPIED_AT_ONCE = 2**20
_MAX_PADDING = 2**26

# Errors of the two modules on archives that are cut off, encrypted, or of another format.
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError),
    *(EOFError, RuntimeError, NotImplementedError, ValueError),
)


@dataclass(frozen=True)
class _Member:
    """One entry: ``kind`` is "file", "folder", "link" or "device"; ``open`` returns a file's content."""

    name: str
    kind: str
    size: int
    open: Callable[[], IO[bytes] | None]


def is_archive(path: Path) -> bool:
    """Return whether the name is that of an archive.

    >>> is_archive(Path("photos.zip")), is_archive(Path("cifar-10-python.tar.gz")), is_archive(Path("a.npz"))
    (True, True, False)
    """
    return path.name.lower().endswith(SUFFIXES)


def unpack_archive(archive: Path) -> Path:
    """Return the folder in the cache with the content of ``archive``; unpack it there the first time.

    The folder is named by the archive's path, size and time of change: a newer download is another folder.
    """
    about = archive.stat()
    identity = f"{archive.absolute()}\0{about.st_size}\0{about.st_mtime_ns}"
    key = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:12]
    folder = cache_root() / "unpacked" / f"{archive.name}-{key}"
    fill_folder(folder, lambda part: _unpack(archive, part))
    return folder


def find_content_root(folder: Path) -> Path:
    """Return the folder where the data begins: most archives hold a single folder that holds everything."""
    while True:
        inside = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        only = inside[0] if len(inside) == 1 else None
        # A folder "train" is a split, and a folder of images alone is a class.
        if only is None or not only.is_dir() or parse_split(only.name):
            return folder
        if all(entry.is_file() and is_image_name(entry.name) for entry in only.iterdir()):
            return folder
        folder = only


def _unpack(archive: Path, folder: Path) -> None:
    most = max(MIN_ALLOWED_BYTES, MAX_RATIO * archive.stat().st_size)
    written = 0
    try:
        # Images hardly shrink, so the archive's size is near enough to what will be written.
        with progress(f"unpacking {archive.name} (MB)", archive.stat().st_size // 2**20) as advance:
            for number, member in enumerate(_members(archive)):
                _refuse(archive, member, number)
                if _not_data(member.name) or member.kind == "folder":
                    continue
                check_free_space(folder, member.size, f"unpacking {archive.name}")
                target = folder / member.name.replace("\\", "/")  # as old archivers write paths
                before, written = written, written + _write(archive, member, target, most - written)
                advance(written // 2**20 - before // 2**20)
    except (*_DAMAGED, OSError) as error:
        # The system's own errors have a number; those without come from a decompressor.
        if isinstance(error, UserError) or (isinstance(error, OSError) and error.errno is not None):
            raise
        reason = first_line(error)
        raise UserError(f"{archive} is damaged or not an archive ({reason}); get it again") from error
    if hasattr(os, "sync"):
        os.sync()  # once, where a sync for each of a hundred thousand files would take minutes


def _members(archive: Path) -> Iterator[_Member]:
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as content:
            for info in content.infolist():
                yield _Member(info.filename, _zip_kind(info), info.file_size, partial(content.open, info))
    else:
        with tarfile.open(archive, "r:*") as packed:
            for found in packed:
                yield _Member(found.name, _tar_kind(found), found.size, partial(packed.extractfile, found))
            _check_end(packed)


def _check_end(packed: tarfile.TarFile) -> None:
    """Raise if the members ended at something else than an end, or if the checksum of a .gz is wrong.

    ``tarfile`` takes a damaged header for the end, and stops reading before the checksum.
    """
    assert packed.fileobj is not None
    packed.fileobj.seek(packed.offset)
    if packed.fileobj.read(tarfile.BLOCKSIZE).strip(b"\0"):
        raise tarfile.ReadError("a header in the middle is damaged")
    for _ in range(_MAX_PADDING // _COPIED_AT_ONCE):
        if not packed.fileobj.read(_COPIED_AT_ONCE):
            break


def _zip_kind(info: zipfile.ZipInfo) -> str:
    mode = stat.S_IFMT(info.external_attr >> 16)
    if info.is_dir() or mode == stat.S_IFDIR:
        return "folder"
    return {0: "file", stat.S_IFREG: "file", stat.S_IFLNK: "link"}.get(mode, "device")


def _tar_kind(member: tarfile.TarInfo) -> str:
    if member.isdir():
        return "folder"
    if member.isreg():
        return "file"
    return "link" if member.issym() or member.islnk() else "device"


def _refuse(archive: Path, member: _Member, number: int) -> None:
    if number >= MAX_MEMBERS:
        raise UserError(f"{archive} has more than {MAX_MEMBERS:,} files; the archive is refused")
    refuse_path(archive, member.name)
    if member.kind not in ("file", "folder"):
        raise UserError(
            f"{archive}: {member.name!r} is a {member.kind}, not a file; the archive is refused "
            "(unpack it yourself if you trust it, and give the folder)"
        )


def _not_data(name: str) -> bool:
    return any(is_hidden(part) for part in PurePosixPath(name).parts)


def _write(archive: Path, member: _Member, target: Path, most: int) -> int:
    """Copy one member, at most ``most`` bytes of it, counting the bytes read, not the size in the header."""
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    content = member.open()
    assert content is not None  # it is a file
    with content, open(target, "wb") as out:
        while chunk := content.read(_COPIED_AT_ONCE):
            written += len(chunk)
            if written > most:
                raise UserError(
                    f"{archive}: with {member.name!r} its content is more than {MAX_RATIO} times as "
                    "large as itself; such a decompression bomb is refused"
                )
            out.write(chunk)
    return written
