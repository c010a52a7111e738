"""GradMix and the arms it is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, choose
from .boxes import boxes_at_peak, boxes_at_spot, boxes_at_window
from .interface import MixDraws, Mixed, Mixer
from .paste import PATCHES, paste

LOCATIONS = {"peak": boxes_at_peak, "window": boxes_at_window}
SCOPES = ("sample", "batch")


@dataclass(frozen=True)
class GradMix(Mixer):
    """A patch where the network already looks, so that it must learn more of the object.

    γ ~ U(gamma_min, gamma_max) is the ratio of side lengths, drawn per ``sample`` or per ``batch``.

    >>> draw = torch.Generator().manual_seed(0)
    >>> images, maps = torch.rand(4, 3, 32, 32), torch.rand(4, 32, 32)  # maps: LayerCAM's, in training
    >>> mixed = GradMix()(images, images.roll(1, 0), maps, draw)
    >>> mixed.images.shape, mixed.share.shape
    (torch.Size([4, 3, 32, 32]), torch.Size([4]))
    """

    gamma_min: float = 0.1
    gamma_max: float = 0.5
    gamma_per: str = "sample"
    locate: str = "peak"
    patch: str = "resize"
    needs_maps = True

    def __post_init__(self) -> None:
        _check_gamma(self.gamma_min, self.gamma_max, self.gamma_per)
        choose("locate", self.locate, LOCATIONS)
        choose("patch", self.patch, PATCHES)

    def draw(self, n: int, generator: torch.Generator) -> MixDraws:
        return MixDraws(_uniform(n, self.gamma_min, self.gamma_max, self.gamma_per, generator))

    def apply(self, images: Tensor, partners: Tensor, maps: Tensor | None, draws: MixDraws) -> Mixed:
        if maps is None or maps.shape != (len(images), *images.shape[2:]):
            got = "none" if maps is None else f"maps {tuple(maps.shape)} for images {tuple(images.shape)}"
            raise UserError(f"GradMix needs one map (H, W) per image; got {got}")
        boxes = LOCATIONS[self.locate](maps, draws.amount.to(images.device))
        mixed = paste(images, partners, boxes, self.patch)
        return Mixed(mixed, boxes.share((images.shape[2], images.shape[3])), boxes)


@dataclass(frozen=True)
class CutMix(Mixer):
    """A patch at a random position.

    With ``alpha`` the foreign area is 1 − λ, λ ~ Beta(α, α), as first published; without it the side
    is γ ~ U(gamma_min, gamma_max), so that only the position differs from GradMix.
    """

    alpha: float | None = None
    gamma_min: float = 0.1
    gamma_max: float = 0.5
    gamma_per: str = "sample"
    patch: str = "resize"
    needs_maps = False

    def __post_init__(self) -> None:
        _check_gamma(self.gamma_min, self.gamma_max, self.gamma_per)
        _check_alpha(self.alpha)
        choose("patch", self.patch, PATCHES)

    def draw(self, n: int, generator: torch.Generator) -> MixDraws:
        if self.alpha is None:
            ratio = _uniform(n, self.gamma_min, self.gamma_max, self.gamma_per, generator)
        else:
            ratio = (1 - _beta(n, self.alpha, self.gamma_per, generator)).sqrt()
        return MixDraws(ratio, torch.rand(2, n, generator=generator).T)

    def apply(self, images: Tensor, partners: Tensor, maps: Tensor | None, draws: MixDraws) -> Mixed:
        assert draws.spot is not None
        size = (images.shape[2], images.shape[3])
        boxes = boxes_at_spot(draws.spot.to(images.device), draws.amount.to(images.device), size)
        return Mixed(paste(images, partners, boxes, self.patch), boxes.share(size), boxes)


@dataclass(frozen=True)
class Mixup(Mixer):
    """λ·image + (1 − λ)·partner, λ ~ Beta(α, α)."""

    alpha: float = 1.0
    gamma_per: str = "sample"
    needs_maps = False

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        choose("gamma_per", self.gamma_per, SCOPES)

    def draw(self, n: int, generator: torch.Generator) -> MixDraws:
        return MixDraws(1 - _beta(n, self.alpha, self.gamma_per, generator))

    def apply(self, images: Tensor, partners: Tensor, maps: Tensor | None, draws: MixDraws) -> Mixed:
        share = draws.amount.to(images)
        return Mixed(torch.lerp(images, partners, share[:, None, None, None]), share, None)


MIXERS: dict[str, Callable[..., Mixer]] = {"gradmix": GradMix, "cutmix": CutMix, "mixup": Mixup}


def draw_mix(alpha: float, generator: torch.Generator) -> float:
    """Draw one λ ~ Beta(α, α), for a whole batch."""
    return float(_beta(1, alpha, "batch", generator))


def _uniform(n: int, low: float, high: float, scope: str, generator: torch.Generator) -> Tensor:
    draws = torch.rand(1 if scope == "batch" else n, generator=generator)
    return (low + (high - low) * draws).expand(n)


def _beta(n: int, alpha: float, scope: str, generator: torch.Generator) -> Tensor:
    """Draw λ ~ Beta(α, α). torch's own Beta takes no generator, so numpy's is seeded from ours."""
    seed = int(torch.randint(2**62, (), generator=generator))
    draws = np.random.default_rng(seed).beta(alpha, alpha, 1 if scope == "batch" else n)
    return torch.from_numpy(draws).to(torch.float32).expand(n)


def _check_gamma(low: float, high: float, scope: str) -> None:
    if not 0 < low <= high <= 1:
        raise UserError(f"patch sides must satisfy 0 < gamma_min <= gamma_max <= 1, not {low} and {high}")
    choose("gamma_per", scope, SCOPES)


def _check_alpha(alpha: float | None) -> None:
    if alpha is not None and not 0 < alpha < math.inf:
        raise UserError(f"alpha must be positive and finite, not {alpha}")
