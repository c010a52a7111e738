"""Decoded images kept on disk, because decoding 60,000 small ones takes seconds each time.

An entry is named by what it was decoded from (path, size and time of change of every file) and how, so that
it is never stale. It is written when decoding took long enough to be worth it, in
``decoded/`` under the cache folder, never beside the data. Deleting that folder is always safe.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from ...errors import UserError
from ...files import read_tensors, write_atomically
from ..decoding import BadImage, Decoded
from ..roots import cache_root
from .contents import make_room, mark_used

_READER_VERSION = 1  # raise it when the same file would decode to other pixels than before
_SECONDS_WORTH_KEEPING = 3.0


def decode_cached(
    files: Iterable[Path], how: object, decode: Callable[[], Decoded], fresh: bool = False
) -> Decoded:
    """Return ``decode()``, or (unless ``fresh``) its last result for the same ``files`` and ``how``."""
    entry = cache_root() / "decoded" / f"{fingerprint(files, how)}.safetensors"
    found = None if fresh else _load(entry)
    if found is not None:
        mark_used(entry)
        return found
    started = time.monotonic()
    decoded = decode()
    if time.monotonic() - started > _SECONDS_WORTH_KEEPING and len(decoded.images):
        _save(entry, decoded)
    return decoded


def fingerprint(files: Iterable[Path], how: object) -> str:
    """Return 32 hex digits of the files (path, size, time of change), ``how``, and the version."""
    digest = hashlib.sha256(json.dumps([_READER_VERSION, how]).encode())
    for file in files:
        try:
            stat = file.stat()
            line = f"{file.absolute()}\0{stat.st_size}\0{stat.st_mtime_ns}\n"
        except OSError:  # decoding will report it
            line = f"{file.absolute()}\0missing\n"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _load(entry: Path) -> Decoded | None:
    if not entry.is_file():
        return None
    try:
        header, tensors = read_tensors(entry)
        bad = tuple(BadImage(name, reason) for name, reason in json.loads(header["bad"]))
        return Decoded(tensors["images"], tensors["kept"], bad)
    except (OSError, KeyError, TypeError, ValueError):
        return None  # damaged or of another program: decode again and overwrite it


def _save(entry: Path, decoded: Decoded) -> None:
    bad = json.dumps([[image.name, image.reason] for image in decoded.bad])
    tensors: dict[str, torch.Tensor] = {"images": decoded.images[:], "kept": decoded.kept}
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(entry, lambda part: save_file(tensors, part, {"bad": bad}))
        make_room(entry.parent)
    except (UserError, OSError, SafetensorError):
        pass  # a full or read-only cache folder costs time, not correctness
