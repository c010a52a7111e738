"""ARPL, adversarial reciprocal points (Chen et al. 2021): a class is what is far from its *other* side.

    d_k = ‖z − P_k‖² / dim(z),   f_k = d_k − z·P_k
    L = CE(f, y) + w · mean max(0, d_y − R + m)

P_k is the reciprocal point of class k: it stands for all that is not k, so the farthest one wins. The second
term keeps a known image within the learned radius R of its own point, which leaves the rest of the space to
the unknown. The margin m is 0 in the paper and 1 in the released code, where it is that of a ranking loss.
∂L/∂R = −w · (share of images outside the radius): R only grows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, choose
from ..losses import smooth_cross_entropy
from ..losses.smoothing import check_smoothing
from ..models import ModelSettings, Network, NetworkSpec, PointsHead
from .interface import Context, Method, Views

MARGINS = {"paper": 0.0, "released": 1.0}


@dataclass(frozen=True)
class ARPLSettings:
    """The radius and the temperature."""

    radius_weight: float = 0.1  # w, of the term that keeps known images within the radius
    radius_margin: str = "paper"  # paper: max(0, d − R); released: max(0, d − R + 1)
    logit_temperature: float = 1.0  # of the cross-entropy
    label_smoothing: float = 0.0  # in the cross-entropy alone
    smoothing_spread: str = "all"  # over all classes (torch's), or over the others than the true one

    def __post_init__(self) -> None:
        choose("radius_margin", self.radius_margin, MARGINS)
        if not self.radius_weight >= 0:
            raise UserError(f"radius_weight must not be negative, not {self.radius_weight}")
        if not self.logit_temperature > 0:
            raise UserError(f"logit_temperature must be positive, not {self.logit_temperature}")
        check_smoothing(self.label_smoothing, self.smoothing_spread)


class ARPL(Method):
    """CE over distances to reciprocal points, and a learned radius; see the module."""

    Settings = ARPLSettings
    view_count = 1
    detector = "mls"
    settings: ARPLSettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network with reciprocal points as its head, from which the logits come."""
        return replace(plain, head={"kind": "points", "classes": num_classes, "distance": 1.0, "dot": -1.0})

    def __init__(self, network: Network, settings: ARPLSettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        self.radius = nn.Parameter(torch.zeros(()))

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        return self.known_losses(self.embed(views.v1), views.labels)

    def known_losses(self, z: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the losses of the embeddings (N, d) of known images."""
        s, head = self.settings, self.points
        logits = head(z) / s.logit_temperature
        ce = smooth_cross_entropy(logits, labels, s.label_smoothing, s.smoothing_spread)
        own = head.distances(z).gather(1, labels[:, None])[:, 0]
        outside = (own - self.radius + MARGINS[s.radius_margin]).relu().mean()
        return {"loss": ce + s.radius_weight * outside, "ce": ce, "radius": outside}

    @property
    def points(self) -> PointsHead:
        """The head with the reciprocal points."""
        head = self.network.classifier
        assert isinstance(head, PointsHead)
        return head
