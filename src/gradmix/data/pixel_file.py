"""Image files decoded once into one raw file, for sets that memory does not hold.

``pixels/<key>/`` in the cache folder has ``pixels.u8``, the readable images one after the other as C × H × W
bytes, and ``about.json``. The key names what was decoded (path, size and time of change of every file) and
how, so that an entry can only be right or unused. While it grows, ``about.json`` says after each part how
far the bytes are safely on disk: a decoding that was killed goes on from there. Deleting ``pixels`` is
always safe.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

import torch

from ..atomic import write_text
from ..errors import UserError
from ..progress import progress
from .cache_folder import need_space, whole_folder
from .decode_cache import fingerprint
from .decode_many import BadImage, Decoded, decode_many, sensible_size
from .mapped_images import MappedImages, PixelMap, Pixels
from .resize import is_grey
from .roots import cache_root

_BYTES_A_PART = 32 * 2**20  # decoded in memory at once


@dataclass(frozen=True)
class _About:
    """How far a pixel file is: ``done`` sources were looked at, ``rows`` of them written, the rest is bad."""

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
            grey=self.grey and (self.channels == 1 or is_grey(part.images[:])),
            bad=(*self.bad, *sorted(bad.items())),
        )


def decode_to_file(
    files: Sequence[Path], names: Sequence[str], size: int | None, channels: int | None, fresh: bool = False
) -> Decoded:
    """As :func:`gradmix.data.decode_many.decode_many`, but the images stay in a file that is mapped.

    One process decodes, others that want the same wait for it; ``fresh`` decodes again.
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
        shutil.rmtree(entry, ignore_errors=True)  # cut off by someone else: decode again
    about = _read_about(whole_folder(entry, fill, resumable=True, fresh=fresh))
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
    return images.converted(None, 1) if channels is None and about.grey else images


def _decode(files: Sequence[Path], size: int | None, channels: int | None, part: Path) -> None:
    """Fill the folder ``part``, or go on filling it."""
    for torn in part.glob(".*.part"):  # an about.json that a kill has cut short
        torn.unlink()
    about = _read_about(part) or _About(size or sensible_size(files)[0], channels or 3)
    need_space(part, (len(files) - about.done) * about.row_bytes, f"decoding {len(files):,} images")
    images_a_part = max(1, _BYTES_A_PART // about.row_bytes)
    pixels = part / "pixels.u8"
    with open(pixels, "r+b" if pixels.exists() else "wb") as out:
        out.seek(out.truncate(about.rows * about.row_bytes))  # beyond is what a kill has cut short
        with progress("decoding images", len(files)) as advance:
            advance(about.done)
            while about.done < len(files):
                chunk = files[about.done : about.done + images_a_part]
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
    """The bytes are on disk before ``about.json`` says so."""
    out.write(decoded.images[:].numpy().data)
    out.flush()
    os.fsync(out.fileno())


def _read_about(folder: Path) -> _About | None:
    """What is said of a pixel file that is as long as it should be; None if there is nothing of the kind."""
    try:
        said = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        about = _About(**said | {"bad": tuple((int(i), str(reason)) for i, reason in said["bad"])})
        return about if (folder / "pixels.u8").stat().st_size >= about.rows * about.row_bytes else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
