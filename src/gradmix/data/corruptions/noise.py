"""Noise of the sensor: Gaussian (low light), shot (counted photons), impulse (dead and hot pixels)."""

from __future__ import annotations

import torch
from scipy.special import pdtr
from torch import Tensor

from .draws import Draws

_LEVELS = 256  # a uint8 pixel has one of 256 expected photon counts, so their distributions fit a table


def gaussian_noise(images: Tensor, sigma: float, draws: Draws) -> Tensor:
    """Return x + σ ε, ε ~ N(0, 1) for every value; images (N, C, H, W) in [0, 1]."""
    return images + sigma * draws.normal("values", *images.shape[1:])


def shot_noise(images: Tensor, photons: int, draws: Draws) -> Tensor:
    """Return Poisson(p x) / p, at most 1, with p photons to full white; the mean is x, the variance x / p.

    Inverse distribution function by look-up. The 256 distributions lie one after another in a sorted
    table, that of level v raised by v, so that one binary search serves all pixels. Counts beyond p are
    clipped to white in the end, so the table ends there.
    """
    level = (images * (_LEVELS - 1)).round().double()
    mean = torch.arange(_LEVELS, dtype=torch.float64) / (_LEVELS - 1) * photons
    count = torch.arange(photons + 1, dtype=torch.float64)
    table = torch.from_numpy(pdtr(count.numpy(), mean[:, None].numpy()))
    table[:, -1] = 1  # "p or more"
    table = (table + torch.arange(_LEVELS)[:, None]).flatten()
    index = torch.searchsorted(table, draws.uniform("values", *images.shape[1:]) + level, right=True)
    return (index - level * (photons + 1)) / photons


def impulse_noise(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Set a ``share`` of the values, each independently, to black or white with equal chance."""
    chance = draws.uniform("values", *images.shape[1:])
    return torch.where(chance < share, (chance < share / 2).to(images), images)
