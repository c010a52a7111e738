"""Random resized crop, flip and rotation as one affine sampling of the whole batch."""

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
    """(n, 2, 3) matrices for ``affine_grid``: output pixel to input place, both in [−1, 1].

    Area share ~ U(scale), aspect ratio log-uniform in ``ratio``, the crop inside the image wherever it
    fits (a side longer than the image is cut to it, keeping every draw: no rejection loop, so that one
    call takes the same random numbers for every image).
    """
    u = torch.rand(6, n, generator=generator)
    area = scale[0] + (scale[1] - scale[0]) * u[0]
    aspect = torch.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * u[1])
    width = (area * aspect).sqrt().clamp(max=1)
    height = (area / aspect).sqrt().clamp(max=1)
    centre_x = (2 * u[2] - 1) * (1 - width)
    centre_y = (2 * u[3] - 1) * (1 - height)
    mirrored = torch.where(u[4] < 0.5, -1.0, 1.0) if flip else torch.ones(n)
    angle = (2 * u[5] - 1) * math.radians(degrees)
    cos, sin = angle.cos(), angle.sin()
    rows = [width * mirrored * cos, -width * sin, centre_x, height * mirrored * sin, height * cos, centre_y]
    return torch.stack(rows, dim=1).view(n, 2, 3)


def sample(images: Tensor, matrices: Tensor, size: int) -> Tensor:
    """(N, C, H, W) float images to (N, C, size, size), bilinear, the border repeated outside."""
    grid = torch.nn.functional.affine_grid(
        matrices.to(images), [len(images), images.shape[1], size, size], align_corners=False
    )
    return torch.nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
