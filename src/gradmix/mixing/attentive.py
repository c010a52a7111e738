"""Attentive CutMix (Walawalkar et al. 2020): the cells of an image that a trained network attends to most."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError


def attentive_cells(features: Tensor, grid: int = 7, cells: int = 6) -> Tensor:
    """Return the cells to which a network attends most.

    (N, K, h, w) features -> (N, grid, grid) bool: the ``cells`` of largest mean activation of each image.

    >>> features = torch.zeros(1, 2, 2, 2); features[0, :, 1, 0] = 1
    >>> attentive_cells(features, grid=2, cells=1)
    tensor([[[False, False],
             [ True, False]]])
    """
    if not 0 < cells < grid * grid:
        raise UserError(
            f"attentive cells must be between 1 and {grid * grid - 1} of {grid}x{grid}, not {cells}"
        )
    attention = F.adaptive_avg_pool2d(features.mean(1, keepdim=True), grid).flatten(1)
    chosen = torch.zeros_like(attention, dtype=torch.bool)
    chosen.scatter_(1, attention.topk(cells, dim=1).indices, True)
    return chosen.view(-1, grid, grid)


def paste_cells(images: Tensor, partners: Tensor, cells: Tensor) -> Tensor:
    """Return ``images`` (N, C, H, W) with ``cells`` (N, g, g) of their ``partners`` at the same position."""
    mask = F.interpolate(cells[:, None].to(images.dtype), images.shape[2:], mode="nearest")
    return torch.where(mask > 0.5, partners, images)
