"""Image files decoded once into one raw file, for sets larger than the memory.

``pixels/<key>/`` in the cache folder has ``pixels.u8``, the readable images one after the other as C × H × W
bytes, and ``about.json``. The key names what was decoded (path, size and time of change of every file) and
how, so that an entry is never stale. While it grows, ``about.json`` says after each part how
many bytes are safely on disk: a decoding that was killed continues there. Deleting ``pixels`` is
always safe.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

import torch

from ...errors import UserError
from ...files import write_text
from ...machine import memory_bytes
from ...progress import progress
from ..decoding import BadImage, Decoded, choose_size, decode_many
from ..mapped_images import MappedImages, PixelMap, Pixels
from ..resize import is_gray
from ..roots import cache_root
from .decode_cache import fingerprint
from .folders import check_free_space, fill_folder

_BYTES_PER_PART = 32 * 2**20  # decoded in memory at once
MAP_ABOVE = "GRADMIX_MAP_ABOVE"
# Reading a folder holds its pixels twice for a moment, and a hold-out copies them once more: a quarter of
# the memory leaves room for that, and for the training itself.
_SHARE_FOR_IMAGES = 4
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def should_map(n_bytes: int) -> bool:
    """Return whether decoded images of this size are memory-mapped rather than held in memory."""
    return n_bytes > map_above()


def map_above() -> int:
    """Return $GRADMIX_MAP_ABOVE in bytes ("500M", "2G", "0" = always map), else a quarter of the memory."""
    given = os.environ.get(MAP_ABOVE)
    return memory_bytes() // _SHARE_FOR_IMAGES if given is None else parse_bytes(given)


def parse_bytes(text: str) -> int:
    """Return the bytes in a text with an optional unit.

    >>> parse_bytes("500 MB"), parse_bytes("2g"), parse_bytes("0")
    (524288000, 2147483648, 0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UserError(f"{MAP_ABOVE} is '{text}'; give a size such as 500M, 2G, or 0 to map everything")
    return int(float(match[1]) * _UNITS[match[2].upper()])


@dataclass(frozen=True)
class _About:
    """The progress of a pixel file: ``done`` sources were read, ``rows`` of them written, the rest is bad."""

    size: int
    channels: int
    done: int = 0
    rows: int = 0
    grey: bool = True  # all images so far, though written with three channels
    bad: tuple[tuple[int, str], ...] = ()

    @property
    def row_bytes(self) -> int:
        return self.channels * self.size**2

    def with_part(self, looked_at: int, part: Decoded, bad: dict[int, str]) -> _About:
        return replace(
            self,
            done=self.done + looked_at,
            rows=self.rows + len(part.images),
            grey=self.grey and (self.channels == 1 or is_gray(part.images[:])),
            bad=(*self.bad, *sorted(bad.items())),
        )


def decode_to_file(
    files: Sequence[Path], names: Sequence[str], size: int | None, channels: int | None, fresh: bool = False
) -> Decoded:
    """Decode as :func:`gradmix.data.decoding.decode_many`, but the images stay in a file that is mapped.

    One process decodes; others that need the same images wait for it; ``fresh`` decodes again.
    """
    how = ["pixels", size, channels]
    entry = cache_root() / "pixels" / fingerprint(files, how)

    def fill(part: Path) -> None:
        _decode(files, size, channels, part)
        if fingerprint(files, how) != entry.name:
            shutil.rmtree(part)
            raise UserError(
                f"images in {files[0].parent} or beside it changed while they were read; try again"
            )

    if not fresh and entry.is_dir() and _read_about(entry) is None:
        shutil.rmtree(entry, ignore_errors=True)  # damaged: decode again
    about = _read_about(fill_folder(entry, fill, resumable=True, fresh=fresh))
    if about is None:
        raise UserError(f"{entry} is damaged; delete it, and the images are decoded again")
    reasons = dict(about.bad)
    kept = torch.tensor([i for i in range(len(files)) if i not in reasons], dtype=torch.int64)
    bad = tuple(BadImage(names[i], reason) for i, reason in about.bad)
    return Decoded(_mapped(entry, about, channels), kept, bad)


def _mapped(entry: Path, about: _About, channels: int | None) -> Pixels:
    shape = (about.rows, about.channels, about.size, about.size)
    if not about.rows:  # an empty file cannot be mapped
        return torch.empty(shape, dtype=torch.uint8)
    images = MappedImages(PixelMap(entry / "pixels.u8", shape), torch.arange(about.rows))
    return images.convert(None, 1) if channels is None and about.grey else images


def _decode(files: Sequence[Path], size: int | None, channels: int | None, part: Path) -> None:
    """Fill the folder ``part``, or continue filling it."""
    for torn in part.glob(".*.part"):  # incomplete copies of about.json
        torn.unlink()
    about = _read_about(part) or _About(size or choose_size(files)[0], channels or 3)
    check_free_space(part, (len(files) - about.done) * about.row_bytes, f"decoding {len(files):,} images")
    images_per_part = max(1, _BYTES_PER_PART // about.row_bytes)
    pixels = part / "pixels.u8"
    with open(pixels, "r+b" if pixels.exists() else "wb") as out:
        out.seek(out.truncate(about.rows * about.row_bytes))  # bytes beyond were not confirmed by about.json
        with progress("decoding images", len(files)) as advance:
            advance(about.done)
            while about.done < len(files):
                chunk = files[about.done : about.done + images_per_part]
                decoded = decode_many(
                    chunk,
                    [str(i) for i in range(about.done, about.done + len(chunk))],
                    size=about.size,
                    channels=about.channels,
                    bar=lambda what, total: nullcontext(advance),
                )
                _append(out, decoded)
                about = about.with_part(
                    len(chunk), decoded, {int(image.name): image.reason for image in decoded.bad}
                )
                write_text(part / "about.json", json.dumps(asdict(about)))
        if not len(files):
            write_text(part / "about.json", json.dumps(asdict(about)))


def _append(out: BinaryIO, decoded: Decoded) -> None:
    """Write the images and flush them to disk, before ``about.json`` counts them."""
    out.write(decoded.images[:].numpy().data)
    out.flush()
    os.fsync(out.fileno())


def _read_about(folder: Path) -> _About | None:
    """Return ``about.json`` of a folder whose pixel file is long enough; otherwise None."""
    try:
        said = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        about = _About(**said | {"bad": tuple((int(i), str(reason)) for i, reason in said["bad"])})
        return about if (folder / "pixels.u8").stat().st_size >= about.rows * about.row_bytes else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
