"""Download one file so that it is whole, right, or not there.

The bytes go to ``.NAME.part`` beside it, which survives whatever ends the process: the next try asks for the
rest (HTTP Range). Only when the checksum is right does the file get its name.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ...errors import UserError
from . import hub_listing
from .hub_listing import HubFile
from .hub_requests import BROKEN, TryAgain, open_url

if TYPE_CHECKING:
    from hashlib import _Hash

_AT_ONCE = 2**20
Advance = Callable[[int], None]


def fetch_file(url: str, file: HubFile, target: Path, what: str, advance: Advance) -> None:
    """Download ``url`` to ``target``, or the rest of it; ``advance`` counts bytes. ``what`` names the set."""
    if target.is_file() and target.stat().st_size == file.size:
        with open(target, "rb") as there:
            if _digest(there, file).hexdigest() == file.checksum:
                advance(file.size)
                return
    part = target.with_name(f".{target.name}.part")
    resumed = part.is_file() and part.stat().st_size > 0
    if not _fill(url, file, part, what, advance):
        # What was there before may be of another version of the file: once more, from its beginning.
        part.unlink()
        if resumed:
            advance(-file.size)
        if not resumed or not _fill(url, file, part, what, advance):
            part.unlink(missing_ok=True)
            raise UserError(
                f"{file.path} of {what} came with another checksum than the Hub gives; nothing was kept of it"
            )
    os.replace(part, target)


def _fill(url: str, file: HubFile, part: Path, what: str, advance: Advance) -> bool:
    """Append to ``part`` until it is as long as the file; return whether its checksum is right."""
    with open(part, "r+b" if part.is_file() else "w+b") as out:
        if out.seek(0, os.SEEK_END) > file.size:
            out.truncate(0)
        out.seek(0)
        digest = _digest(out, file)
        advance(out.tell())
        failures = 0
        while out.tell() < file.size:
            before = out.tell()
            try:
                digest = _append(url, file, out, digest, what, advance)
            except TryAgain as error:
                failures = 0 if out.tell() > before else failures + 1
                if failures >= hub_listing.TRIES:
                    raise UserError(
                        f"{file.path} of {what} broke off after {out.tell():,} of {file.size:,} bytes "
                        f"({error}); the same command goes on from there"
                    ) from error
                time.sleep(hub_listing.FIRST_PAUSE * 2**failures)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest() == file.checksum


def _append(url: str, file: HubFile, out: BinaryIO, digest: _Hash, what: str, advance: Advance) -> _Hash:
    """Ask for the bytes that ``out`` lacks, and append what comes; return the digest of all of them."""
    start = out.tell()
    headers = {"Range": f"bytes={start}-"} if start else {}
    try:
        with open_url(url, f"{file.path} of {what}", headers) as answer:
            if start and not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                out.seek(0)  # the server sends it all
                out.truncate()
                advance(-start)
                digest = _start_digest(file)
            while out.tell() < file.size:
                chunk = answer.read(min(_AT_ONCE, file.size - out.tell()))
                if not chunk:
                    raise TryAgain("the connection was closed")
                out.write(chunk)
                digest.update(chunk)
                advance(len(chunk))
    except BROKEN as error:
        raise TryAgain(str(error) or type(error).__name__) from error
    return digest


def _start_digest(file: HubFile) -> _Hash:
    if file.algorithm == "sha256":
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)


def _digest(content: BinaryIO, file: HubFile) -> _Hash:
    """Return the digest of what is left to read of ``content``."""
    digest = _start_digest(file)
    while chunk := content.read(_AT_ONCE):
        digest.update(chunk)
    return digest
