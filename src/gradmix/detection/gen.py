"""Generalized entropy (GEN), after Liu et al. 2023, "GEN: Pushing the Limits of Softmax-Based
Out-of-Distribution Detection"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from .learned import require_count
from .logits import LogitDetector


def generalized_entropy(logits: Tensor, gamma: float = 0.1, largest: int = 100) -> Tensor:
    """Return −Σ over the ``largest`` p of p^γ (1 − p)^γ, p = softmax(f): (N, K) -> (N,) float64.

    1 − p of the largest is the sum of the others: for confident images the difference would round to 0, and
    a power of .1 makes 0.025 of an error of 1e-16.

    >>> generalized_entropy(torch.zeros(1, 2), gamma=0.5)
    tensor([-1.], dtype=torch.float64)
    """
    p = torch.softmax(logits.double(), dim=1).sort(dim=1, descending=True).values
    rest = torch.cat([p[:, 1:].sum(dim=1, keepdim=True), 1 - p[:, 1:]], dim=1)
    return -(p * rest)[:, :largest].pow(gamma).sum(dim=1)


class GEN(LogitDetector):
    """Minus the generalized entropy of the ``largest`` (100, or all) softmax probabilities.

    score = −Σ p^γ (1 − p)^γ; ``gamma`` (0.1): the smaller, the more the small probabilities count.
    """

    name = "gen"

    def __init__(self, gamma: float = 0.1, largest: int = 100) -> None:
        if not 0 < gamma < 1:
            raise UserError(f"gen needs gamma between 0 and 1, not {gamma}")
        self.gamma, self.largest = gamma, require_count(self.name, "largest", largest)

    def score_logits(self, logits: Tensor) -> Tensor:
        return generalized_entropy(logits, self.gamma, self.largest)

    def settings(self) -> dict[str, Any]:
        return {"gamma": self.gamma, "largest": self.largest}
