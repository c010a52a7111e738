"""Cross-entropy alone, and with a self-supervised term beside it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ..losses import nt_xent, smooth_cross_entropy
from ..losses.smoothing import check_smoothing
from .interface import Method, Views


@dataclass(frozen=True)
class CrossEntropySettings:
    """Plain classification."""

    label_smoothing: float = 0.0
    smoothing_spread: str = "all"  # over all classes (torch's), or over the others than the true one

    def __post_init__(self) -> None:
        check_smoothing(self.label_smoothing, self.smoothing_spread)


class CrossEntropy(Method):
    """CE on one view: the field's baseline, to be scored by MSP, MLS, energy or entropy."""

    Settings = CrossEntropySettings
    needs_classifier = True
    detector = "mls"
    view_count = 1

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        logits = self.logits(self.embed(views.v1))
        s = self.settings
        return {"loss": smooth_cross_entropy(logits, views.labels, s.label_smoothing, s.smoothing_spread)}


@dataclass(frozen=True)
class CrossEntropySSLSettings:
    """L = θ·L_ce + λ·L_simclr (the paper's Table 1)."""

    theta: float = 1.0  # weight of cross-entropy
    lam: float = 1.0  # weight of the self-supervised term
    simclr_temperature: float = 0.05
    label_smoothing: float = 0.0
    smoothing_spread: str = "all"  # over all classes (torch's), or over the others than the true one

    def __post_init__(self) -> None:
        check_smoothing(self.label_smoothing, self.smoothing_spread)
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
    detector = "mls"

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s = self.settings
        z1, z2 = self.embed(views.v1), self.embed(views.v2)
        logits = self.logits(torch.cat([z1, z2]))
        labels = views.labels.repeat(2)
        ce = smooth_cross_entropy(logits, labels, s.label_smoothing, s.smoothing_spread)
        simclr = nt_xent(F.normalize(z1, dim=1), F.normalize(z2, dim=1), s.simclr_temperature)
        return {"loss": s.theta * ce + s.lam * simclr, "ce": ce, "simclr": simclr}
