"""LogitNorm (Wei et al. 2022): cross-entropy of logits of unit length.

    L = CE(f / (τ·‖f‖), y)

Plain cross-entropy can always be lowered by longer logits, and so trains confidence in everything. Here only
the direction of f counts; its gradient is at right angles to f. A small τ makes up for the length: without it
the loss could not fall below log(1 + (K − 1)·exp(−√(K/(K − 1))/τ)), which τ = 0.04 brings near 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet
from ..errors import UserError
from .checks import require_two_classes
from .interface import Method, Views

_SHORTEST = 1e-7  # added to the length, as in the released code: logits may all be 0


@dataclass(frozen=True)
class LogitNormSettings:
    """The length that logits get."""

    logitnorm_temperature: float = 0.04  # τ

    def __post_init__(self) -> None:
        if not self.logitnorm_temperature > 0:
            raise UserError(f"logitnorm_temperature must be positive, not {self.logitnorm_temperature}")


class LogitNorm(Method):
    """Cross-entropy that sees the direction of the logits only; see the module.

    The network's logits are f itself, as in the released code: its length, which nothing trained, is part of
    the score.
    """

    Settings = LogitNormSettings
    needs_classifier = True
    view_count = 1
    detector = "msp"
    settings: LogitNormSettings

    def check_images(self, images: ImageSet) -> None:
        require_two_classes(images, "logitnorm")

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        logits = self.logits(self.embed(views.v1))
        return {"loss": logitnorm_loss(logits, views.labels, self.settings.logitnorm_temperature)}


def logitnorm_loss(logits: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return the mean of CE(f / (τ‖f‖), y) over logits f (N, K) and labels y (N,).

    >>> logits, label = torch.tensor([[3.0, 4.0]]), torch.tensor([1])
    >>> round(float(logitnorm_loss(logits, label, 1.0)), 4)  # log(1 + exp(0.6 - 0.8))
    0.5981
    """
    length = torch.linalg.vector_norm(logits, dim=1, keepdim=True) + _SHORTEST
    return F.cross_entropy(logits / (temperature * length), labels)
