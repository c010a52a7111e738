"""Heads: from embeddings z (N, d) to one logit per class.

A head is described by plain values (``describe``), so that a model file can be opened without the code that
trained it. What a method needs only while it trains belongs into the method, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from ..errors import UserError, choose


class Head(nn.Module):
    """Embeddings (N, d) to logits (N, K), and whatever else a detector may ask for."""

    kind: str
    num_classes: int

    def describe(self) -> dict[str, Any]:
        """Return what :func:`build_head` needs to build this head again, as JSON can hold it."""
        raise NotImplementedError

    def extra(self, z: Tensor) -> dict[str, Tensor]:
        """Return further outputs (N, …) by name, for the detectors that need them."""
        return {}

    def linear(self) -> nn.Linear | None:
        """Return the linear map that the logits are, or None if they are no such map of z."""
        return None


class LinearHead(nn.Linear, Head):
    """f = W z + b.

    >>> LinearHead(4, 3).describe()
    {'kind': 'linear', 'classes': 3, 'bias': True}
    """

    kind = "linear"

    def __init__(self, dim: int, classes: int, bias: bool = True) -> None:
        super().__init__(dim, classes, bias=bias)
        self.num_classes = classes

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "classes": self.num_classes, "bias": self.bias is not None}

    def linear(self) -> nn.Linear:
        return self


class PointsHead(Head):
    """One learned point P_k per class: f_k = distance·‖z − P_k‖²/d + dot·z·P_k.

    ``distance`` = −1, ``dot`` = 0 are class centres: the nearest wins. ``distance`` = 1, ``dot`` = −1 are
    ARPL's reciprocal points, which stand for all that is *not* of class k: the farthest wins.

    >>> head = PointsHead(2, 2, distance=1.0, dot=-1.0)
    >>> head.points.data = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    >>> head(torch.tensor([[1.0, 2.0]])).tolist()
    [[2.5, 1.0]]
    """

    kind = "points"

    def __init__(
        self, dim: int, classes: int, distance: float = -1.0, dot: float = 0.0, spread: float = 0.1
    ) -> None:
        """Draw the points; ``spread`` is the standard deviation of their coordinates before training."""
        super().__init__()
        self.num_classes, self.distance, self.dot, self.spread = classes, distance, dot, spread
        self.points = nn.Parameter(spread * torch.randn(classes, dim))

    def describe(self) -> dict[str, Any]:
        weights = {"distance": self.distance, "dot": self.dot, "spread": self.spread}
        return {"kind": self.kind, "classes": self.num_classes, **weights}

    def distances(self, z: Tensor) -> Tensor:
        """Return ‖z − P_k‖²/d of z (N, d): (N, K).

        As ‖z‖² − 2 z·P + ‖P‖², which needs no (N, K, d) differences.
        """
        squares = z.square().sum(1, keepdim=True) + self.points.square().sum(1) - 2 * z @ self.points.T
        return squares.clamp(min=0) / z.shape[1]

    def forward(self, z: Tensor) -> Tensor:
        z = z.float() if z.dtype in (torch.float16, torch.bfloat16) else z  # squares overflow there
        logits = self.distance * self.distances(z)
        return logits + self.dot * (z @ self.points.T) if self.dot else logits


class DummiesHead(Head):
    """f = W z + b of the known classes, and the same of ``dummies`` placeholders for what is of none of them.

    The logits are those of the known classes; the placeholders' (N, dummies) are the extra output
    ``"dummies"``.
    """

    kind = "dummies"

    def __init__(self, dim: int, classes: int, dummies: int = 1, bias: bool = True) -> None:
        super().__init__()
        self.num_classes = classes
        self.known = nn.Linear(dim, classes, bias)
        self.dummies = nn.Linear(dim, dummies, bias)

    def describe(self) -> dict[str, Any]:
        bias = self.known.bias is not None
        return {
            "kind": self.kind,
            "classes": self.num_classes,
            "dummies": self.dummies.out_features,
            "bias": bias,
        }

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.known(z)
        return logits

    def extra(self, z: Tensor) -> dict[str, Tensor]:
        return {"dummies": self.dummies(z)}

    def linear(self) -> nn.Linear:
        return self.known


class MLPHead(Head):
    """f = W₂ max(0, W₁ z + b₁) + b₂.

    ``spectral``: each W is divided by its largest singular value, which is followed by one power iteration
    per training step, from vectors that are buffers and so in the model file.
    """

    kind = "mlp"

    def __init__(self, dim: int, classes: int, hidden: int = 128, spectral: bool = False) -> None:
        super().__init__()
        self.num_classes, self.spectral = classes, spectral
        self.hidden, self.out = nn.Linear(dim, hidden), nn.Linear(hidden, classes)
        if spectral:
            spectral_norm(self.hidden)
            spectral_norm(self.out)

    def describe(self) -> dict[str, Any]:
        sizes = {"classes": self.num_classes, "hidden": self.hidden.out_features}
        return {"kind": self.kind, **sizes, "spectral": self.spectral}

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.out(self.hidden(z).relu())
        return logits


HEADS: dict[str, Callable[..., Head]] = {
    LinearHead.kind: LinearHead,
    PointsHead.kind: PointsHead,
    DummiesHead.kind: DummiesHead,
    MLPHead.kind: MLPHead,
}


def build_head(description: Mapping[str, Any], dim: int) -> Head:
    """Build the head that ``Head.describe`` described, for embeddings of ``dim`` numbers.

    >>> build_head({"kind": "linear", "classes": 3}, dim=8)(torch.zeros(2, 8)).shape
    torch.Size([2, 3])
    """
    settings = dict(description)
    kind = choose("head", str(settings.pop("kind", "")), HEADS)
    try:
        return HEADS[kind](dim, **settings)
    except TypeError as error:
        raise UserError(f"head '{kind}' cannot be built from {settings}: {error}") from error
