"""Cross-entropy alone, and with a self-supervised term beside it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ..losses import nt_xent
from .interface import Method, Views


@dataclass(frozen=True)
class CrossEntropySettings:
    """Plain classification."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_smoothing(self.label_smoothing)


class CrossEntropy(Method):
    """CE on one view: the field's baseline, to be scored by MSP, MLS, energy or entropy."""

    Settings = CrossEntropySettings
    needs_classifier = True
    view_count = 1

    def step(self, views: Views, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
        logits = self.network.logits(self.embed(views.v1))
        assert logits is not None
        loss = F.cross_entropy(
            self.world.union(logits), views.labels, label_smoothing=self.settings.label_smoothing
        )
        torch.autograd.backward(scale * loss)
        return {"loss": loss.detach()}


@dataclass(frozen=True)
class CrossEntropySSLSettings:
    """L = θ·L_ce + λ·L_simclr (the paper's Table 1)."""

    theta: float = 1.0  # weight of cross-entropy
    lam: float = 1.0  # weight of the self-supervised term
    simclr_temperature: float = 0.05
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_smoothing(self.label_smoothing)
        if not self.simclr_temperature > 0:
            raise UserError(f"simclr_temperature must be positive, not {self.simclr_temperature}")
        if not (self.theta >= 0 and self.lam >= 0 and self.theta + self.lam > 0):
            raise UserError(
                f"theta and lam must not be negative, nor both 0, but they are {self.theta} and {self.lam}"
            )


class CrossEntropySSL(Method):
    """CE on both views, NT-Xent between them on the same embedding."""

    Settings = CrossEntropySSLSettings
    needs_classifier = True

    def step(self, views: Views, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
        s = self.settings
        z1, z2 = self.embed(views.v1), self.embed(views.v2)
        logits = self.network.logits(torch.cat([z1, z2]))
        assert logits is not None
        both = torch.cat([self.world.union(view) for view in logits.chunk(2)])
        ce = F.cross_entropy(both, views.labels.repeat(2), label_smoothing=s.label_smoothing)
        unit1, unit2 = (F.normalize(self.world.union(z), dim=1) for z in (z1, z2))
        simclr = nt_xent(unit1, unit2, s.simclr_temperature)
        loss = s.theta * ce + s.lam * simclr
        torch.autograd.backward(scale * loss)
        return {"loss": loss.detach(), "ce": ce.detach(), "simclr": simclr.detach()}


def _check_smoothing(share: float) -> None:
    if not 0 <= share < 1:
        raise UserError(f"label_smoothing must lie in [0, 1), not {share}")
