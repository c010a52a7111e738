"""Decide what an array of pixels is: one image, or a stack of images.

| shape | is read as |
|---|---|
| (H, W) | one gray image |
| (H, W, C) with C = 1, 3 or 4 | one image; the fourth channel is transparency, laid on white |
| (1, H, W), (3, H, W) | one image (C, H, W) |
| (N, H, W) | N gray images |
| (N, H, W, C), (N, C, H, W) | N images |

Three gray images have the shape of one color image with its channels first. Whoever knows the number of
images (labels come with them) says so; otherwise a network for color images reads it as one image and a
network for gray images as three, with a warning, unless it is a torch tensor for a color network: there,
channels first is the convention. What could be read with its channels first or last is refused.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from .arrays import to_nchw, wrap_array
from .imageset import ImageFormat

_CHANNELS_LAST = (1, 3, 4)
_CHANNELS_FIRST = (1, 3)


def to_stack(array: Any, image_format: ImageFormat, count: int | None = None) -> Tensor:
    """Return a uint8 array or tensor as (N, C, H, W); ``count`` is the number of images, if that is known."""
    shape = tuple(array.shape)
    if len(shape) == 2:
        _refuse_flattened(shape, image_format, count)
        return to_nchw(array[None])
    if len(shape) != 3:
        return to_nchw(_lay_on_white(array))
    if count is not None and count == shape[0]:
        return to_nchw(array)
    if shape[0] == 3 and shape[2] not in _CHANNELS_LAST:
        return to_nchw(array[None] if _is_one_image(array, image_format) else array)
    return to_one(array) if is_one(shape) else to_nchw(array)


def is_one(shape: tuple[int, ...]) -> bool:
    """Return whether an array of this shape is one image, if it is not known to be a stack of gray ones.

    >>> [is_one(shape) for shape in ((28, 28), (480, 640, 3), (3, 480, 640), (50, 28, 28))]
    [True, True, True, False]
    """
    return len(shape) == 2 or (
        len(shape) == 3 and (shape[0] in _CHANNELS_FIRST or shape[2] in _CHANNELS_LAST)
    )


def to_one(array: Any) -> Tensor:
    """Return one image (H, W), (H, W, C) or (C, H, W), uint8, as (1, C, H, W)."""
    shape = tuple(array.shape)
    if len(shape) == 2:
        return to_nchw(array[None])
    if shape[2] in _CHANNELS_LAST and shape[0] in _CHANNELS_FIRST:
        raise UserError(
            f"an image of shape {shape} could have its channels first or last; give (1, H, W, C) or "
            "(1, C, H, W)"
        )
    if shape[2] in _CHANNELS_LAST:
        array = array.movedim(-1, 0) if isinstance(array, Tensor) else np.moveaxis(array, -1, 0)
    return to_nchw(_lay_on_white(array[None]))


def _is_one_image(array: Any, image_format: ImageFormat) -> bool:
    """Return whether (3, H, W) is one color image rather than three gray ones; say so where it is a guess."""
    one = image_format.channels == 3
    if not (one and isinstance(array, Tensor)):
        reading = "one image with its channels first" if one else "three gray images"
        h, w = array.shape[1:]
        warnings.warn(
            f"pixels of shape (3, {h}, {w}) are read as {reading}; give (1, 3, {h}, {w}) for one image, or "
            f"(3, 1, {h}, {w}) for three",
            stacklevel=2,
        )
    return one


def _refuse_flattened(shape: tuple[int, ...], image_format: ImageFormat, count: int | None) -> None:
    pixels = image_format.size**2
    if (count is not None and count != 1) or shape[1] in (pixels, 3 * pixels):
        raise UserError(
            f"images have shape {shape}; flattened ones have lost their height and width: "
            "reshape them to (N, H, W) or (N, H, W, C)"
        )


def _lay_on_white(array: Any) -> Any:
    """Return (N, H, W, 4) or (N, 4, H, W), uint8 with transparency, as (N, 3, H, W); others as they are."""
    shape = tuple(array.shape)
    if len(shape) != 4 or (shape[1] != 4 and shape[3] != 4) or shape[1] in (1, 3) or shape[3] in (1, 3):
        return array
    tensor = array if isinstance(array, Tensor) else wrap_array(np.ascontiguousarray(array))
    if tensor.dtype != torch.uint8:
        return array  # refused by its type
    if shape[3] == 4:
        tensor = tensor.movedim(3, 1)
    color, alpha = tensor[:, :3].to(torch.int32), tensor[:, 3:].to(torch.int32)
    return ((color * alpha + 255 * (255 - alpha) + 127) // 255).to(torch.uint8)
