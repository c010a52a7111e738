"""Several sets of unlabeled images as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..errors import UserError
from .imageset import UNKNOWN, ImageSet
from .mapped_images import MappedImages, Pixels


def concatenate_unknown(sets: Sequence[ImageSet]) -> ImageSet:
    """Return all images of ``sets``, one set after the other, labelled unknown.

    Subsets of one mapped file stay on disk; otherwise the images are copied into memory.
    """
    shapes = {tuple(images.images.shape[1:]) for images in sets}
    if len(shapes) != 1:
        raise UserError(
            f"sets of images of {len(shapes)} shapes cannot be put together; read them in one size"
        )
    pixels = _concatenate([images.images for images in sets])
    known_sources = all(images.sources or not len(images) for images in sets)
    sources = tuple(source for images in sets for source in images.sources) if known_sources else ()
    return ImageSet(pixels, torch.full((len(pixels),), UNKNOWN), (), sources)


def _concatenate(parts: Sequence[Pixels]) -> Pixels:
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, MappedImages):
        rows: list[Tensor] = [
            part.rows
            for part in parts
            if isinstance(part, MappedImages)
            and part.source is first.source
            and part.conversions == first.conversions
        ]
        if len(rows) == len(parts):
            return replace(first, rows=torch.cat(rows))
    return torch.cat([part[:] for part in parts])
