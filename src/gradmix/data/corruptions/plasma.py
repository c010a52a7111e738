"""Clouds: random height maps by midpoint displacement (the diamond-square method), a batch at once."""

from __future__ import annotations

import torch
from torch import Tensor

from .draws import Draws

_ROUGHNESS = 100.0  # only its ratio to later rounds matters, since the map is scaled to 0 … 1


def plasma(draws: Draws, size: int, decay: float) -> Tensor:
    """Return (N, size, size) in [0, 1], periodic; ``size`` a power of two.

    Midpoints of squares, then of their edges, get the mean of their four neighbours plus a random part
    that shrinks by ``decay``² with each halving of the grid (the displacement is the roughness times a
    uniform number that is scaled by the roughness again).
    """
    field = torch.zeros(draws.n, size, size, dtype=torch.float64)
    chance = draws.between(-1, 1, "heights", size, size)
    roughness = _ROUGHNESS
    step = size
    while step >= 2:
        half = step // 2
        corner, centre = slice(0, None, step), slice(half, None, step)
        corners = field[:, corner, corner]
        pairs = corners + corners.roll(-1, 1)
        field[:, centre, centre] = (pairs + pairs.roll(-1, 2)) / 4 + roughness**2 * chance[:, centre, centre]
        centres = field[:, centre, centre]
        level = centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        upright = centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        field[:, corner, centre] = level / 4 + roughness**2 * chance[:, corner, centre]
        field[:, centre, corner] = upright / 4 + roughness**2 * chance[:, centre, corner]
        roughness /= decay
        step = half
    field -= field.amin((1, 2), keepdim=True)
    # A map of one pixel is flat; it stays at zero rather than become 0 / 0.
    return field / field.amax((1, 2), keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
