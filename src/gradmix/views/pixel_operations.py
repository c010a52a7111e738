"""The operations of RandAugment on a batch of uint8 images, with Pillow's arithmetic.

Each takes images (N, C, H, W) and one value per image. Those that change a byte by its own value alone are
tables (N, C, 256), looked up together; those that move pixels are one nearest sampling. Pillow's rules are
kept, as the published settings were tuned with them: blends are cut off, not rounded; the border of a
smoothed image is left as it was; moved images are black outside.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .geometry import take_pixels

_FIXED = 65536  # Pillow samples with 16 bits behind the point
_LUMA = (19595, 38470, 7471)  # Rec. 601 times _FIXED
_CUTOUT_COLOR = (125, 123, 114)


def to_gray(images: Tensor) -> Tensor:
    """Return (N, 1, H, W), int64: the luma of color images, rounded as Pillow does; gray ones as they are.

    >>> to_gray(torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)).item()
    76
    """
    wide = images.long()
    if images.shape[1] == 1:
        return wide
    weights = torch.tensor(_LUMA, device=images.device).view(1, 3, 1, 1)
    return ((wide * weights).sum(1, keepdim=True) + _FIXED // 2) >> 16


def blend(start: Tensor, end: Tensor, amount: Tensor) -> Tensor:
    """Return start + amount·(end − start), clamped to bytes and cut off; amounts above 1 go beyond ``end``.

    >>> blend(torch.tensor([100]), torch.tensor([103]), torch.tensor([0.5])).item()
    101
    """
    first = start.float()
    return (first + amount.float() * (end.float() - first)).clamp_(0, 255).to(torch.uint8)


# Tables. ``levels`` are 0 … 255.


def _autocontrast(images: Tensor, values: Tensor, levels: Tensor) -> Tensor:
    """Stretch each channel to the whole range."""
    flat = images.flatten(2)
    low, high = flat.amin(2, keepdim=True).double(), flat.amax(2, keepdim=True).double()
    scale = torch.full_like(low, 255) / (high - low)  # 255 / x would be 255 · (1/x), rounded twice
    stretched = (levels * scale - low * scale).clamp(0, 255)
    return torch.where(high > low, stretched, levels.double())


def _equalize(images: Tensor, values: Tensor, levels: Tensor) -> Tensor:
    """Make all bytes of a channel about equally frequent."""
    n, channels = images.shape[:2]
    flat = images.reshape(n * channels, -1).long()
    rows = torch.arange(n * channels, device=images.device)[:, None]
    counts = torch.bincount((flat + 256 * rows).flatten(), minlength=256 * n * channels).view(-1, 256)
    of_brightest = counts.gather(1, flat.amax(1, keepdim=True))
    step = (flat.shape[1] - of_brightest) // 255
    below = counts.cumsum(1) - counts
    equal = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, equal, levels).view(n, channels, 256)


def _invert(images: Tensor, values: Tensor, levels: Tensor) -> Tensor:
    return 255 - levels


def _posterize(images: Tensor, values: Tensor, levels: Tensor) -> Tensor:
    """Keep the first so many bits, at least one."""
    bits = values.long().clamp(1, 8)
    return levels & (256 - 2 ** (8 - bits))


def _solarize(images: Tensor, values: Tensor, levels: Tensor) -> Tensor:
    """Invert the bytes from the threshold on."""
    return torch.where(levels < values, levels, 255 - levels)


def _solarize_add(images: Tensor, values: Tensor, levels: Tensor) -> Tensor:
    """Add to *every* byte, as released, then invert those from 128 on."""
    brighter = (levels + values).clamp(0, 255).long()
    return torch.where(brighter < 128, brighter, 255 - brighter)


def _brightness(images: Tensor, values: Tensor, levels: Tensor) -> Tensor:
    return blend(torch.zeros_like(levels), levels, values)


def _contrast(images: Tensor, values: Tensor, levels: Tensor) -> Tensor:
    """Blend with the image's mean gray."""
    mean = (to_gray(images).flatten(1).double().mean(1) + 0.5).floor()
    return blend(mean[:, None, None], levels, values)


_Table = Callable[[Tensor, Tensor, Tensor], Tensor]
TABLES: dict[str, _Table] = {
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "invert": _invert,
    "posterize": _posterize,
    "solarize": _solarize,
    "solarize_add": _solarize_add,
    "brightness": _brightness,
    "contrast": _contrast,
}


def make_table(name: str, images: Tensor, values: Tensor) -> Tensor:
    """Return (N, C, 256), uint8: what each byte of each channel of images (N, C, H, W) becomes."""
    levels = torch.arange(256, device=images.device)
    table = TABLES[name](images, values[:, None, None], levels)
    return table.to(torch.uint8).expand(*images.shape[:2], 256)


def look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Return every byte of images (N, C, H, W) replaced through tables (N, C, 256)."""
    return tables.gather(2, images.flatten(2).long()).view(images.shape)


# What needs more than the byte itself.


def change_color(images: Tensor, values: Tensor) -> Tensor:
    """Blend with the gray image; gray images stay as they are."""
    return blend(to_gray(images), images, values[:, None, None, None])


def sharpen(images: Tensor, values: Tensor) -> Tensor:
    """Blend with the image smoothed by (1 1 1; 1 5 1; 1 1 1)/13, whose border stays as it was."""
    wide = images.int()
    smooth = wide.clone()
    across = wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]
    total = across[..., :-2, :] + across[..., 1:-1, :] + across[..., 2:, :] + 4 * wide[..., 1:-1, 1:-1]
    smooth[..., 1:-1, 1:-1] = (2 * total + 13) // 26  # rounded; a thirteenth is never a tie
    return blend(smooth, images, values[:, None, None, None])


def cut_out(images: Tensor, values: Tensor, spots: Tensor) -> Tensor:
    """Paint a gray square; its center at ``spots`` (N, 2), shares of the width and height.

    A square of side v covers ⌊v⌋ + 1 pixels, as released: both of its edges are painted.
    """
    n, channels, height, width = images.shape
    inside = torch.ones(n, height, width, dtype=torch.bool, device=images.device)
    for axis, side in ((2, width), (1, height)):
        start = (spots[:, 2 - axis] * side - values / 2).clamp(min=0).floor()
        end = (start + values).clamp(max=side)
        places = torch.arange(side, device=images.device)
        hit = (places >= start[:, None]) & (places <= end[:, None])
        inside &= hit[:, None, :] if axis == 2 else hit[:, :, None]
    color = torch.tensor(_CUTOUT_COLOR, dtype=torch.uint8, device=images.device).view(1, 3, 1, 1)
    paint = color if channels == 3 else to_gray(color).to(torch.uint8)
    return torch.where(inside[:, None], paint, images)


def sample_nearest(images: Tensor, matrices: Tensor) -> Tensor:
    """Return images (N, C, H, W) moved by (N, 2, 3) matrices, float64: output pixel to input position.

    In pixels from the upper left corner, as ``Image.transform`` has it, to the bit; black outside.
    """
    height, width = images.shape[-2:]
    start = matrices[..., 2] + (matrices[..., 0] + matrices[..., 1]) / 2  # the center of the first pixel
    fixed = torch.cat([matrices[..., :2], start[..., None]], 2).mul(_FIXED).add(0.5).floor().long()
    a, b, c = (fixed[..., i, None, None] for i in range(3))  # (N, 2, 1, 1)
    rows, columns = (torch.arange(side, device=images.device) for side in (height, width))
    places = (a * columns + b * rows[:, None] + c) >> 16
    return take_pixels(images, places[:, 0], places[:, 1])


def rotation_matrices(degrees: Tensor, height: int, width: int) -> Tensor:
    """Return (N, 2, 3) matrices for :func:`sample_nearest`: a turn about the center, anticlockwise."""
    angle = -torch.deg2rad(degrees.double())
    cos, sin = angle.cos(), angle.sin()
    x, y = width / 2, height / 2
    values = [cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y]
    return torch.stack(values, 1).view(-1, 2, 3)
