"""Blurring and resampling as a matrix for the rows and a matrix for the columns.

Every filter here is linear and separable, so on a batch it is two matrix products, out = R x Cᵀ,
with what happens at the border folded into the matrices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def apply(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Multiply (N, C, H, W) by ``rows`` (h, H) and ``columns`` (w, W); return (N, C, h, w)."""
    return rows @ images @ columns.T


def gaussian_blur(images: Tensor, sigma: float, *, truncate: float = 4.0, border: str = "nearest") -> Tensor:
    """Blur (N, C, H, W) by a Gaussian of ``sigma`` pixels."""
    height, width = images.shape[-2:]
    return apply(
        images,
        gaussian_matrix(height, sigma, truncate, border),
        gaussian_matrix(width, sigma, truncate, border),
    )


def gaussian_matrix(size: int, sigma: float, truncate: float, border: str) -> Tensor:
    """Return (size, size): row i holds exp(−(i − j)² / 2σ²), cut at ``truncate`` σ and normalized.

    Beyond the edge the image goes on with its last pixel ("nearest") or mirrored, d c b a | a b c d
    ("reflect").
    """
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return torch.eye(size, dtype=torch.float64)
    offset = torch.arange(-radius, radius + 1)
    kernel = torch.exp(-(offset.double() ** 2) / (2 * sigma**2))
    kernel /= kernel.sum()
    reached = torch.arange(size)[:, None] + offset  # (size, taps)
    if border == "nearest":
        reached = reached.clamp(0, size - 1)
    else:
        reached = reached.remainder(2 * size)
        reached = torch.where(reached < size, reached, 2 * size - 1 - reached)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, reached, kernel.expand(size, -1))


def zoom_matrix(size: int, factor: float) -> Tensor:
    """Return (size, size): the middle ``size / factor`` pixels, enlarged linearly to all of them.

    The middle is taken as ⌈size / factor⌉ whole pixels, enlarged with the outermost pixels on the
    outermost pixels, and what is then too much is cut off on both sides.
    """
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    first = (size - kept) // 2
    cut = (enlarged - size) // 2
    position = (torch.arange(size, dtype=torch.float64) + cut) * (kept - 1) / max(enlarged - 1, 1)
    left = position.floor().clamp(max=max(kept - 2, 0)).long()
    share = (position - left)[:, None]
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, (first + left)[:, None], 1 - share)
    return matrix.scatter_add_(1, (first + left + 1).clamp(max=size - 1)[:, None], share)


def box_matrix(size: int, wanted: int) -> Tensor:
    """Return (wanted, size): each new pixel is the mean of those whose centers it covers, or the nearest."""
    scale = size / wanted
    reach = max(scale, 1.0)
    middle = (torch.arange(wanted, dtype=torch.float64) + 0.5) * scale
    distance = (torch.arange(size, dtype=torch.float64) + 0.5 - middle[:, None]) / reach
    covered = ((distance > -0.5) & (distance <= 0.5)).double()
    return covered / covered.sum(1, keepdim=True)
