"""Convert whole batches of uint8 images: size, and gray or color."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# Rec. 601 luma in 16-bit fixed point, the integers that Pillow uses: they sum to 65536, so that an image
# whose three channels are equal comes back bit for bit.
_LUMA = (19595, 38470, 7471)
_IMAGES_AT_ONCE = 1024  # bounds the float copy that resizing needs


def to_gray(images: Tensor) -> Tensor:
    """Return (N, 1, H, W) uint8 of (N, 3, H, W) uint8: 0.299 R + 0.587 G + 0.114 B, rounded.

    >>> int(to_gray(torch.full((1, 3, 1, 1), 77, dtype=torch.uint8)))
    77
    """
    out = torch.empty_like(images[:, :1])
    for part, grey in zip(_parts(images), _parts(out), strict=True):
        red, green, blue = part.to(torch.int32).unbind(1)
        luma = red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2] + 0x8000
        grey[:, 0] = (luma >> 16).to(torch.uint8)
    return out


def to_color(images: Tensor) -> Tensor:
    """Return (N, 3, H, W) of (N, 1, H, W): the gray channel three times."""
    return images.repeat(1, 3, 1, 1)


def is_gray(images: Tensor) -> bool:
    """Return whether the three channels of every image of (N, 3, H, W) are equal."""
    return all(
        bool((part[:, 0] == part[:, 1]).all() and (part[:, 1] == part[:, 2]).all()) for part in _parts(images)
    )


def fit_square(images: Tensor, size: int) -> Tensor:
    """Return (N, C, size, size) of (N, C, H, W) uint8: the central square, resized (antialiased, bilinear).

    Up to the outermost pixels this is scaling the shorter side to ``size`` and then cropping, but it never
    holds the enlarged version of a very long image.
    """
    height, width = images.shape[-2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = images[..., top : top + side, left : left + side]
    if side == size:
        return square.contiguous()
    out = torch.empty((*images.shape[:2], size, size), dtype=torch.uint8)
    for part, target in zip(_parts(square), _parts(out), strict=True):
        scaled = F.interpolate(part.float(), (size, size), mode="bilinear", antialias=True)
        target.copy_(scaled.round_().clamp_(0, 255))
    return out


def convert(images: Tensor, size: int | None, channels: int | None) -> Tensor:
    """Return (N, C, H, W) uint8 as size × size squares with ``channels`` 1 or 3; None keeps it."""
    if channels == 1 and images.shape[1] == 3:
        images = to_gray(images)
    if size is not None and images.shape[-2:] != (size, size):
        images = fit_square(images, size)
    if channels == 3 and images.shape[1] == 1:
        images = to_color(images)
    return images


def converted_shape(shape: Sequence[int], size: int | None, channels: int | None) -> tuple[int, int, int]:
    """Return the (C, H, W) that :func:`convert` makes of images of that shape.

    >>> converted_shape((3, 20, 30), size=16, channels=None)
    (3, 16, 16)
    """
    height, width = shape[1:] if size is None else (size, size)
    return channels or shape[0], height, width


def _parts(images: Tensor) -> list[Tensor]:
    return [images[i : i + _IMAGES_AT_ONCE] for i in range(0, len(images), _IMAGES_AT_ONCE)]
