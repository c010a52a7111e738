"""Blur along a line: a camera that moves, or a snowflake that falls."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .draws import Draws

_TOO_LITTLE = 1e-7  # a tap of less weight cannot change a pixel of 256 levels


def motion_blur(images: Tensor, setting: tuple[int, float], draws: Draws) -> Tensor:
    """Each image moves in a direction of its own, −45° … 45° from the horizontal."""
    radius, sigma = setting
    return along_line(images, radius, sigma, draws.between(-45, 45, "angle"))


def along_line(images: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Σ_i k_i x(p + round(i (cos θ, sin θ))), i = 0 … 2 radius; images (N, C, H, W), ``degrees`` θ (N,).

    k_i ∝ exp(−i² / 2σ²): a trail to one side, as ImageMagick draws it (the published sets use it). The
    border pixel is repeated outside.
    """
    n, channels, height, width = images.shape
    step = torch.arange(2 * math.ceil(radius) + 1, dtype=torch.float64)
    weight = torch.exp(-(step**2) / (2 * sigma**2))
    weight /= weight.sum()
    angle = torch.deg2rad(degrees.double())[:, None]
    right = torch.ceil(step * angle.cos() - 0.5).long()  # (N, taps)
    down = torch.ceil(step * angle.sin() - 0.5).long()
    row, column = torch.arange(height), torch.arange(width)
    flat = images.reshape(n, channels, height * width)
    total = torch.zeros_like(flat)
    for tap in range(int((weight > _TOO_LITTLE).sum())):
        rows = (row + down[:, tap, None]).clamp_(0, height - 1)
        columns = (column + right[:, tap, None]).clamp_(0, width - 1)
        place = (rows[:, :, None] * width + columns[:, None, :]).view(n, 1, height * width)
        total.add_(flat.gather(2, place.expand(-1, channels, -1)), alpha=float(weight[tap]))
    return total.view(images.shape)
