"""Shape the penultimate activation (or the head's weights), and take the energy of what the head says then.

One idea, five ways: score = logsumexp(W g(h) + b). The label is that of the unshaped logits, so that shaping
changes what is rejected and never what an accepted image is called.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from .learned import LearnedDetector, mean_of_rows, require_share
from .logits import energy
from .outputs import HeadWeights, Outputs

_MOST_VALUES = 2**24  # of which a percentile is taken; above, of evenly spaced images
_WIDE = 1024  # activations from which on a network is no small one


def percentiles(h: Tensor, shares: tuple[float, ...]) -> Tensor:
    """Return the percentiles of all entries of h (M, d) in float64, between two values by interpolation.

    Of more than 2²⁴ entries, those of evenly spaced images: bounded memory, and an error in rank of 1e-4.

    >>> percentiles(torch.tensor([[0.0, 1.0], [2.0, 4.0]]), (0.5, 1.0)).tolist()
    [1.5, 4.0]
    """
    step = -(-h.numel() // _MOST_VALUES)
    values = h[:: max(1, step)].cpu().numpy()
    return torch.from_numpy(np.quantile(values, shares)).double().to(h.device)


def boost(h: Tensor, prune: float) -> tuple[Tensor, Tensor]:
    """Return exp(Σh / Σkept) (N, 1) of h (N, d), and which are kept: the d − round(prune·d) largest per row.

    All that equal the smallest kept value are kept. Where the kept do not sum to more than 0 (a row of
    zeros), the exponent is 1.
    """
    keep = max(1, h.shape[1] - round(prune * h.shape[1]))
    kept = h >= h.topk(keep, dim=1).values[:, -1:]
    total, of_kept = h.sum(dim=1, keepdim=True), (h * kept).sum(dim=1, keepdim=True)
    ratio = total / of_kept.where(of_kept > 0, torch.ones_like(of_kept))
    return ratio.where(of_kept > 0, torch.ones_like(ratio)).exp(), kept


class ShapedEnergy(LearnedDetector):
    """What the five have in common. A subclass writes ``shape``: g(h) of activations (n, d_h), float64."""

    needs = frozenset({"penultimate", "logits", "head"})

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        """Learn nothing, unless a subclass does."""

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.penultimate is not None
        assert rows.head is not None
        return energy(self.head(rows.head).logits(self.shape(rows.penultimate.double())))

    def head(self, head: HeadWeights) -> HeadWeights:
        """Return the head that is applied: the network's own, unless a subclass has another."""
        return head

    @abstractmethod
    def shape(self, h: Tensor) -> Tensor:
        """Return g(h) (n, d_h) of activations (n, d_h), float64."""


class ReAct(ShapedEnergy):
    """Activations clipped above (Sun et al. 2021, "ReAct: Out-of-distribution Detection With Rectified
    Activations").

    score = logsumexp(W min(h, t) + b), t the ``clip`` (0.9) percentile of all training activations.
    """

    name = "react"
    learned: ClassVar[tuple[str, ...]] = ("limit",)
    limit: Tensor  # (1,)

    def __init__(self, clip: float = 0.9) -> None:
        self.clip = _percentile(self.name, "clip", clip)

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        self.limit = percentiles(train.penultimate, (self.clip,))

    def shape(self, h: Tensor) -> Tensor:
        return h.minimum(self.limit)


class VRA(ShapedEnergy):
    """Small activations set to 0, large ones clipped (Xu et al. 2023, "VRA: Variational Rectified Activation
    for Out-of-distribution Detection").

    score = logsumexp(W g(h) + b), g(h) = 0 below a, h up to b, b above; a and b are the ``low`` (0.6) and
    ``high`` (0.95) percentiles of all training activations.
    """

    name = "vra"
    learned: ClassVar[tuple[str, ...]] = ("limits",)
    limits: Tensor  # (2,)

    def __init__(self, low: float = 0.6, high: float = 0.95) -> None:
        self.low, self.high = _percentile(self.name, "low", low), _percentile(self.name, "high", high)
        if low >= high:
            raise UserError(f"vra needs low below high, not {low} and {high}")

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        self.limits = percentiles(train.penultimate, (self.low, self.high))

    def shape(self, h: Tensor) -> Tensor:
        low, high = self.limits
        return h.minimum(high).where(h >= low, torch.zeros_like(h))


class ASH(ShapedEnergy):
    """Most activations pruned, the rest enlarged (Djurisic et al. 2023, "Extremely Simple Activation Shaping
    for Out-of-Distribution Detection", variant S).

    score = logsumexp(W g(h) + b), g(h) = the largest (1 − q) of h, times exp(Σh / Σkept), the others 0.
    ``prune``: q; None is 0.65 for fewer than 1,024 activations, else 0.9. Learns nothing.
    """

    name = "ash"
    learns = False

    def __init__(self, prune: float | None = None) -> None:
        self.prune = None if prune is None else require_share(self.name, "prune", prune)

    def shape(self, h: Tensor) -> Tensor:
        q = (0.65 if h.shape[1] < _WIDE else 0.9) if self.prune is None else self.prune
        factor, kept = boost(h, q)
        return h * kept * factor


class Scale(ShapedEnergy):
    """All activations enlarged, nothing pruned (Xu et al. 2024, "Scaling for Training Time and Post-hoc
    Out-of-distribution Detection Enhancement").

    score = logsumexp(W (h · exp(Σh / Σkept)) + b), kept = the largest (1 − q) of h; ``prune``: q (0.85).
    Learns nothing.
    """

    name = "scale"
    learns = False

    def __init__(self, prune: float = 0.85) -> None:
        self.prune = require_share(self.name, "prune", prune)

    def shape(self, h: Tensor) -> Tensor:
        return h * boost(h, self.prune)[0]


class DICE(ShapedEnergy):
    """Weights that contribute little left out (Sun & Li 2022, "DICE: Leveraging Sparsification for
    Out-of-Distribution Detection").

    score = logsumexp((M ⊙ W) h + b), M keeps the ``keep`` (0.3) of all entries of W with the largest
    contribution W ⊙ mean h, the mean over the training images.
    """

    name = "dice"
    learned: ClassVar[tuple[str, ...]] = ("mask",)
    mask: Tensor  # (K, d_h) bool

    def __init__(self, keep: float = 0.3) -> None:
        if not 0 < keep <= 1:
            raise UserError(f"dice needs keep above 0 and at most 1, not {keep}")
        self.keep = keep

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        assert train.head is not None
        contribution = train.head.weight.double() * mean_of_rows(train.penultimate)
        count = max(1, round(self.keep * contribution.numel()))
        self.mask = contribution >= contribution.flatten().topk(count).values[-1]

    def head(self, head: HeadWeights) -> HeadWeights:
        return HeadWeights(head.weight * self.mask, head.bias)

    def shape(self, h: Tensor) -> Tensor:
        return h


def _percentile(name: str, what: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise UserError(f"{name} needs {what} between 0 and 1, not {value}")
    return value
