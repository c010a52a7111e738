"""RotPred (Hendrycks et al. 2019): a classifier that must also tell how an image was turned.

    L = CE(f(x), y) + w · Σ_r CE(g(R_r x), r),   r = 0, 90, 180, 270 degrees

f and g are linear heads on the same embedding. An image whose turns the network cannot tell looks unlike what
it was trained on: the score adds both certainties. Only the image as it is goes into the first term; all four
turns of every image are in every step, and go through the network together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet
from ..errors import UserError, choose
from ..models import TURNS, ModelSettings, NetworkSpec, RotationProbe, turn
from .checks import require_two_classes
from .interface import Method, Stage, Views
from .together import embed_together

LOSSES = {"paper": float(TURNS), "released": 1 / 3}  # times the mean over the turns


@dataclass(frozen=True)
class RotPredSettings:
    """What telling the rotation weighs."""

    rotation_weight: float = 1.0  # w
    rotation_loss: str = "paper"  # paper: the sum over the turns; released: a third of their mean
    label_smoothing: float = 0.0  # in the cross-entropy of the classes alone

    def __post_init__(self) -> None:
        choose("rotation_loss", self.rotation_loss, LOSSES)
        if not self.rotation_weight >= 0:
            raise UserError(f"rotation_weight must not be negative, not {self.rotation_weight}")
        if not 0 <= self.label_smoothing < 1:
            raise UserError(f"label_smoothing must lie in [0, 1), not {self.label_smoothing}")


class RotPred(Method):
    """Cross-entropy of the classes and of the rotation; see the module."""

    Settings = RotPredSettings
    needs_classifier = True
    view_count = 1
    detector = "rotpred"
    settings: RotPredSettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network with a linear head, and a probe that tells rotations."""
        spec = super().describe_network(plain, settings, model, num_classes)
        return replace(spec, probe={"kind": RotationProbe.kind})

    def check_images(self, images: ImageSet) -> None:
        require_two_classes(images, "rotpred")

    def passes(self, stage: Stage) -> float:
        """Return three for each of four turns."""
        return 12.0

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s, probe = self.settings, self.network.probe
        assert isinstance(probe, RotationProbe)
        turns = embed_together(self, turn(views.v1))
        ce = F.cross_entropy(self.logits(turns[0]), views.labels, label_smoothing=s.label_smoothing)
        rotation = rotation_loss(probe.logits(turns))
        weight = s.rotation_weight * LOSSES[s.rotation_loss]
        return {"loss": ce + weight * rotation, "ce": ce, "rotation": rotation}


def rotation_loss(logits: Tensor) -> Tensor:
    """Return the mean of CE(row r, r) over images and turns r; logits: (N, 4, 4).

    >>> round(float(rotation_loss(torch.zeros(2, 4, 4)).exp()), 4)
    4.0
    """
    right = torch.arange(logits.shape[1], device=logits.device).expand(len(logits), -1)
    return F.cross_entropy(logits.flatten(0, 1), right.flatten())
