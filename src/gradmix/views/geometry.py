"""Crops, flips and rotations of a whole batch: by one affine sampling, or by whole pixels."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def crop_matrices(
    n: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    flip: bool,
    degrees: float,
    generator: torch.Generator,
) -> Tensor:
    """Draw (n, 2, 3) matrices for ``affine_grid``: output pixel to input position, both in [−1, 1].

    Area share ~ U(scale), aspect ratio log-uniform in ``ratio``, the crop inside the image wherever it
    fits (a side longer than the image is cut to it, keeping every draw: no rejection loop, so that one
    call takes the same random numbers for every image).
    """
    u = torch.rand(6, n, generator=generator)
    area = scale[0] + (scale[1] - scale[0]) * u[0]
    aspect = torch.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * u[1])
    width = (area * aspect).sqrt().clamp(max=1)
    height = (area / aspect).sqrt().clamp(max=1)
    center_x = (2 * u[2] - 1) * (1 - width)
    center_y = (2 * u[3] - 1) * (1 - height)
    mirrored = torch.where(u[4] < 0.5, -1.0, 1.0) if flip else torch.ones(n)
    angle = (2 * u[5] - 1) * math.radians(degrees)
    cos, sin = angle.cos(), angle.sin()
    rows = [width * mirrored * cos, -width * sin, center_x, height * mirrored * sin, height * cos, center_y]
    return torch.stack(rows, dim=1).view(n, 2, 3)


def sample(images: Tensor, matrices: Tensor, size: int) -> Tensor:
    """Sample (N, C, size, size) from float images (N, C, H, W), bilinear, the border repeated outside."""
    grid = torch.nn.functional.affine_grid(
        matrices.to(images), [len(images), images.shape[1], size, size], align_corners=False
    )
    return torch.nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def draw_shifts(
    n: int, pad: int, flip: bool, degrees: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw (n, 3) whole numbers, how far right and down and whether mirrored, and (n, 2, 3) rotations.

    The crop of a padded image: each shift in −pad … pad is as likely as the others. Takes the random numbers
    that :func:`crop_matrices` takes, so that what is drawn afterwards does not depend on the kind of crop.
    """
    u = torch.rand(6, n, generator=generator)
    shifts = (u[2:4].double() * (2 * pad + 1)).long() - pad  # float32 would round the last up
    mirrored = u[4] < 0.5 if flip else torch.zeros(n, dtype=torch.bool)
    angle = (2 * u[5] - 1) * math.radians(degrees)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros(n)
    rotations = torch.stack([cos, -sin, zero, sin, cos, zero], dim=1).view(n, 2, 3)
    return torch.stack([shifts[0], shifts[1], mirrored.long()], dim=1), rotations


def shift(images: Tensor, shifts: Tensor, pad_mode: str) -> Tensor:
    """Return images (N, C, H, W) shifted, then mirrored, by whole pixels; outside ``zero`` or ``reflect``."""
    height, width = images.shape[-2:]
    right, down, mirrored = (shifts.to(images.device)[:, i, None] for i in range(3))
    columns = torch.arange(width, device=images.device)
    x = torch.where(mirrored > 0, columns.flip(0), columns) + right
    y = torch.arange(height, device=images.device) + down
    if pad_mode == "reflect":
        x, y = _reflect(x, width), _reflect(y, height)
    return take_pixels(images, x[:, None, :], y[:, :, None])


def take_pixels(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return (N, C, …): the pixels of images (N, C, H, W) at whole places x, y, each (N, …); 0 outside."""
    n, channels, height, width = images.shape
    outside = (x < 0) | (x >= width) | (y < 0) | (y >= height)
    places = (y * width + x).masked_fill_(outside, 0)
    index = places.reshape(n, 1, -1).expand(n, channels, -1)
    taken = images.flatten(2).gather(2, index).view(n, channels, *outside.shape[1:])
    return taken.masked_fill_(outside[:, None], 0)


def _reflect(places: Tensor, side: int) -> Tensor:
    """Return places beyond an edge mirrored at the outermost pixel, which is not repeated."""
    return (side - 1) - ((side - 1) - places.abs()).abs()
