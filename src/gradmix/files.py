"""Files that others may read and write at the same time: atomic writes, locks, and safe reading of tensors.

- :func:`write_atomically`, :func:`write_text`: a file is complete or absent, never a part.
- :func:`wait_for_lock`, :func:`try_lock`: one process at a time.
- :func:`read_tensors`: a .safetensors file, read into memory of its own; :func:`checksum` of its tensors.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from .errors import UserError
from .progress import progress

_SECONDS_BETWEEN_LOCK_TRIES = 0.1
_READ_TRIES = 100  # to read a file that another process is writing
_SECONDS_BETWEEN_READ_TRIES = 0.03
_TICK = 0.02  # seconds; two changes within one tick of the system clock get the same time stamp
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


# Atomic writes


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it to ``path`` in one step.

    A reader sees the old file or the new one, never a part. If the disk is full or the process is killed,
    the old file stays. Who may read and write the old file may do so with the new one, and nobody else.
    """
    part: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        os.close(handle)
        part = Path(name)
        write(part)
        with open(part, "rb") as f:
            os.fsync(f.fileno())
        os.chmod(part, _mode_for(path))
        os.replace(part, path)
        with suppress(OSError):  # some file systems cannot; the file itself is on the disk
            sync_folder(path.parent)
    except OSError as error:
        raise UserError(f"could not write {path}: {error.strerror or error}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` atomically."""

    def write(part: Path) -> None:
        part.write_bytes(content)

    write_atomically(path, write)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically, as UTF-8.

    File names may hold bytes that are not UTF-8; these become escapes, which JSON decodes to the same bytes.
    """

    def write(part: Path) -> None:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")

    write_atomically(path, write)


def sync_folder(folder: Path) -> None:
    """Flush the entries of ``folder`` to disk, so that new names survive a power failure."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _mode_for(path: Path) -> int:
    """Return the permissions of the file that is replaced, or those that any new file gets."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


# Locks


@contextmanager
def wait_for_lock(file: Path, waiting: str) -> Iterator[None]:
    """Hold the lock on ``file`` during the block; wait for its present holder first.

    ``waiting`` is the text of the progress bar if that takes long.
    """
    lock = FileLock(file)
    with progress(waiting, 1) as advance:
        while not _acquire(lock):
            time.sleep(_SECONDS_BETWEEN_LOCK_TRIES)
            advance(0)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def try_lock(file: Path) -> Iterator[bool]:
    """Yield whether the lock on ``file`` could be taken at once; if so, hold it during the block."""
    lock = FileLock(file)
    acquired = _acquire(lock)
    try:
        yield acquired
    finally:
        if acquired:
            lock.release()


def _acquire(lock: FileLock) -> bool:
    """Try once to take the lock; return whether that succeeded.

    The system frees a lock when its holder exits, however it exits. Only the holder of a lock may delete its
    file. A process that had opened the file before it was deleted then locks a file that no other process
    can open; so a lock counts only if its file still has a name, and otherwise the new file is tried.
    """
    while True:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        if _file_exists(lock):
            return True
        lock.release()


def _file_exists(lock: FileLock) -> bool:
    """Return whether the locked file still has a name: it may be deleted between opening and locking.

    Recent versions of filelock check this themselves; earlier ones that this package allows do not.
    """
    handle = getattr(getattr(lock, "_context", None), "lock_file_fd", None)
    return handle is None or os.name != "posix" or os.fstat(handle).st_nlink > 0


# Tensor files


class DamagedFile(ValueError):
    """The file is cut short, or is no .safetensors file; the message says what is wrong."""


class UnsettledFile(DamagedFile):
    """The file was still being written to at the last try."""


def read_tensors(path: str | Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata of a .safetensors file and its tensors by name, from one state of the file.

    The safetensors library maps the file, and its tensors stay bound to the map: a ``cp`` over the file
    changes them, and if the file becomes shorter, accessing one ends the process (SIGBUS). Here every tensor
    is copied into memory of its own, through one open file, and nothing is executed. If the file is written
    to or replaced during the reading, it is read again.
    """
    for _ in range(_READ_TRIES):
        with open(path, "rb") as f:
            if not _is_settled(_state(f)):
                time.sleep(_SECONDS_BETWEEN_READ_TRIES)
            before = _state(f)
            settled, failure = _is_settled(before), None
            try:
                found = _read(f, before[0])
            except DamagedFile as error:
                failure = error
            if settled and _state(f) == before:
                if failure:
                    raise failure
                return found
        time.sleep(_SECONDS_BETWEEN_READ_TRIES)
    raise UnsettledFile("it is written to again and again")


def _state(f: BufferedReader) -> tuple[int, int, int]:
    """Return (size, mtime, ctime): it differs after every change, except within one tick of the clock."""
    found = os.fstat(f.fileno())
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns  # ``cp -p`` sets mtime back, but not ctime


def _is_settled(state: tuple[int, int, int]) -> bool:
    """Return whether the last change is more than a tick ago, so that a later one gets another time.

    A time stamp in the future says nothing and counts as settled.
    """
    return not 0 <= time.time_ns() - max(state[1:]) < _TICK * 1e9


def _read(f: BufferedReader, size: int) -> tuple[dict[str, str], dict[str, Tensor]]:
    length = int.from_bytes(_read_bytes(f, 8, size), "little")
    if length > min(_MAX_HEADER_BYTES, size - 8):
        raise DamagedFile(f"a header of {length} bytes in a file of {size}")
    try:
        header = json.loads(_read_bytes(f, length, size))
    except (ValueError, RecursionError) as error:
        raise DamagedFile("the header is not JSON") from error
    if not isinstance(header, dict):
        raise DamagedFile("the header names no tensors")
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise DamagedFile("the header holds other things than words")
    entries = sorted(
        ((_parse_entry(name, about), name) for name, about in header.items()), key=lambda entry: entry[0][:2]
    )
    position = 0
    for (begin, end, _, _), name in entries:
        if begin != position:
            raise DamagedFile(f"'{name}' does not begin where the tensor before it ends")
        position = end
    if position != size - 8 - length:
        raise DamagedFile(f"{position} bytes of tensors expected, {size - 8 - length} found")
    tensors = {name: _read_tensor(f, *entry) for entry, name in entries}
    if f.read(1):
        raise DamagedFile("it is longer than when it was opened")
    return metadata, tensors


_Entry = tuple[int, int, torch.dtype, list[int]]


def _parse_entry(name: str, about: Any) -> _Entry:
    """Return (begin, end, dtype, shape) of a tensor from its entry in the header; raise if they disagree."""
    try:
        dtype, shape, (begin, end) = _DTYPES[about["dtype"]], about["shape"], about["data_offsets"]
        numbers = [*shape, begin, end]
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"no tensor '{name}' can be like that") from error
    if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
        raise DamagedFile(f"no tensor '{name}' can be like that")
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise DamagedFile(f"'{name}' has {end - begin} bytes, which is not what its shape needs")
    return begin, end, dtype, shape


def _read_tensor(f: BufferedReader, begin: int, end: int, dtype: torch.dtype, shape: list[int]) -> Tensor:
    content = torch.empty(end - begin, dtype=torch.uint8)
    view, position = content.numpy().data, 0
    while position < len(view):
        count = f.readinto(view[position:])
        if not count:
            raise DamagedFile("it ends in the middle of a tensor")
        position += count
    return content.view(dtype).reshape(shape)


def _read_bytes(f: BufferedReader, count: int, size: int) -> bytes:
    content = f.read(min(count, size))
    if len(content) < count:
        raise DamagedFile("it ends before the tensors begin")
    return content


# Checksums: whatever a bit flip, a bad cable or half a copy changes in a file is noticed


def add_tensors(digest: hashlib._Hash, tensors: Mapping[str, Tensor]) -> None:
    """Add name, type, shape and values of every tensor to ``digest``."""
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Return 64 hex digits that change with any bit of the tensors, and of ``text``.

    >>> checksum({"x": torch.zeros(2)}) == checksum({"x": torch.tensor([0.0, -0.0])})
    False
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    add_tensors(digest, tensors)
    return digest.hexdigest()
