"""LogitNorm image by image."""

from __future__ import annotations

import math

from torch import Tensor

from tests.reference.proser import cross_entropy


def logitnorm(logits: Tensor, labels: Tensor, temperature: float) -> float:
    """The mean of CE(f / (τ‖f‖), y)."""
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        length = math.sqrt(sum(f * f for f in row))
        total += cross_entropy([f / (temperature * length) for f in row], label)
    return total / len(logits)
