"""What a mixer takes and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from .boxes import Boxes


@dataclass(frozen=True)
class Mixed:
    """Mixed images (N, C, H, W), the foreign share of each (N,), and where it lies (None for Mixup)."""

    images: Tensor
    share: Tensor
    boxes: Boxes | None


@dataclass(frozen=True)
class MixDraws:
    """What chance decides of each of N images: how much is foreign (N,), and where (N, 2) in [0, 1)."""

    amount: Tensor
    spot: Tensor | None = None

    def __len__(self) -> int:
        return len(self.amount)

    def __getitem__(self, rows: slice) -> MixDraws:
        return MixDraws(self.amount[rows], None if self.spot is None else self.spot[rows])


class Mixer(ABC):
    """Puts part of ``partners`` into ``images``.

    :meth:`draw` and :meth:`apply` are two, so that the draws for a batch do not depend on who mixes which
    of its images; calling the mixer does both.
    """

    needs_maps: bool

    @abstractmethod
    def draw(self, n: int, generator: torch.Generator) -> MixDraws:
        """Draw for n images."""

    @abstractmethod
    def apply(self, images: Tensor, partners: Tensor, maps: Tensor | None, draws: MixDraws) -> Mixed:
        """Mix images and partners (N, C, H, W); maps: (N, H, W) if ``needs_maps``, else ignored."""

    def __call__(
        self, images: Tensor, partners: Tensor, maps: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        """Draw for these images, and mix them."""
        return self.apply(images, partners, maps, self.draw(len(images), generator))


def derangement(n: int, generator: torch.Generator) -> Tensor:
    """Return a random partner for each of n images, never itself: a random cycle through all of them."""
    if n < 2:
        raise UserError("mixing needs a partner for every image: a batch of at least 2 images")
    order = torch.randperm(n, generator=generator)
    partner = torch.empty_like(order)
    partner[order] = order.roll(1)
    return partner
