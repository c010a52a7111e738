"""Uploaded bytes to pixels: only formats that are decoded in this process, only so many pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data import ImageSet
from ..data.decode import Unreadable, decode, open_image
from ..recognition.any_images import Wanted
from .form import Upload
from .limits import Limits
from .refusal import Refusal, one_line

# Folders may hold more kinds, but those are hardly ever sent, and their readers hardly ever looked at.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP")


@dataclass(frozen=True, eq=False)
class Pictures:
    """``images`` (n, C, S, S) uint8 of the uploads that could be read; the others' reasons by place.

    ``names`` are of all uploads, ``kept`` (n) the places of those that could be read.
    """

    images: Tensor
    names: tuple[str, ...]
    kept: tuple[int, ...]
    errors: dict[int, str]

    def image_set(self) -> ImageSet:
        """Those that could be read, unlabelled."""
        labels = torch.full((len(self.images),), -1)
        return ImageSet(self.images, labels, (), tuple(self.names[i] for i in self.kept))


def read_pictures(uploads: Sequence[Upload], wanted: Wanted, limits: Limits) -> Pictures:
    """Decode what can be decoded; refused with 422 if that is nothing."""
    limits.check_count(len(uploads))
    if not uploads:
        raise Refusal(422, "there is no image in the request; put files into the field 'images'")
    pixels = np.empty((len(uploads), wanted.size, wanted.size, wanted.channels), dtype=np.uint8)
    kept: list[int] = []
    errors: dict[int, str] = {}
    for i, upload in enumerate(uploads):
        try:
            _decode_into(pixels[len(kept)], upload.content, wanted, limits.pixels)
        except Unreadable as reason:
            errors[i] = one_line(f"{upload.name} {reason}")
        else:
            kept.append(i)
    if not kept:
        more = "" if len(errors) == 1 else f" (and {len(errors) - 1} more; none can be read)"
        raise Refusal(422, errors[0] + more)
    images = torch.from_numpy(pixels[: len(kept)]).permute(0, 3, 1, 2)
    return Pictures(images, tuple(upload.name for upload in uploads), tuple(kept), errors)


def all_readable(pictures: Pictures) -> Pictures:
    """The same, refused if a single one could not be read: for what changes the model."""
    if pictures.errors:
        raise Refusal(422, f"{next(iter(pictures.errors.values()))}; nothing was changed")
    return pictures


def _decode_into(out: NDArray[np.uint8], content: bytes, wanted: Wanted, most_pixels: int) -> None:
    """The central square of one image into ``out`` (S, S, C)."""
    with open_image(content) as opened:
        if opened.format not in FORMATS:
            raise Unreadable(f"is {opened.format}; send one of {', '.join(FORMATS)}")
        if opened.width * opened.height > most_pixels:
            raise Unreadable(
                f"is too large: {opened.width} x {opened.height} pixels, the limit is {most_pixels:,}"
            )
    try:
        image = decode(content, wanted.size)
        mode = "L" if wanted.channels == 1 else "RGB"
        plain = np.asarray(image if image.mode == mode else image.convert(mode))
    except (MemoryError, OverflowError) as error:
        raise Unreadable("cannot be decoded") from error
    out[:] = plain if plain.ndim == 3 else plain[..., None]
