"""How much of the image the network uses: S_M(τ)."""

from __future__ import annotations

import torch
from torch import Tensor


def area_thresholds(count: int = 21) -> Tensor:
    """Return τ from 1e-5 to 1e-3, log-spaced, as in the paper's figure."""
    return torch.logspace(-5, -3, count)


def activated_area(maps: Tensor, thresholds: Tensor) -> Tensor:
    """Return S_M(τ), the share of map pixels > τ over all raw maps (N, H, W): one value per threshold (T,).

    >>> activated_area(torch.tensor([[[0.0, 1.0], [2.0, 3.0]]]), torch.tensor([0.5, 2.0]))
    tensor([0.7500, 0.2500])
    """
    ordered = maps.flatten().sort().values
    above = ordered.numel() - torch.searchsorted(ordered, thresholds.to(ordered), right=True)
    return above.to(torch.float32) / ordered.numel()
