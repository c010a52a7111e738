"""What a mixer takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..errors import UserError
from ..world import ALONE, World
from .boxes import Boxes


@dataclass(frozen=True)
class Mixed:
    """Mixed images (N, C, H, W), the foreign share of each (N,), and where it lies (None for Mixup)."""

    images: Tensor
    share: Tensor
    boxes: Boxes | None


class Mixer(Protocol):
    """Puts part of ``partners`` into ``images``."""

    needs_maps: bool

    def __call__(
        self,
        images: Tensor,
        partners: Tensor,
        maps: Tensor | None,
        generator: torch.Generator,
        world: World = ALONE,
    ) -> Mixed:
        """images, partners: (N, C, H, W); maps: (N, H, W) if ``needs_maps``, else ignored.

        Where several processes share a batch these are one's own rows, and the draws are those of its rows
        in draws for all.
        """
        ...


def derangement(n: int, generator: torch.Generator) -> Tensor:
    """A random partner for each of n images, never itself: a random cycle through all of them."""
    if n < 2:
        raise UserError("mixing needs a partner for every image: a batch of at least 2 images")
    order = torch.randperm(n, generator=generator)
    partner = torch.empty_like(order)
    partner[order] = order.roll(1)
    return partner
