"""Losses of OSRCI and G-OpenMax, number by number."""

from __future__ import annotations

import math

from torch import Tensor


def one_versus_rest(logits: Tensor, labels: Tensor) -> float:
    """The mean over images and classes of log(1 + exp(−y·f))."""
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        for k, f in enumerate(row):
            y = 1 if k == label else -1
            total += math.log(1 + math.exp(-y * f))
    return total / logits.numel()


def fine_tuning_loss(real: Tensor, labels: Tensor, made: Tensor) -> float:
    """CE of real images over (f, 0) plus the mean −log P(unknown) of made ones."""
    known = unknown = 0.0
    for row, label in zip(real.tolist(), labels.tolist(), strict=True):
        known -= row[label] - math.log(1 + sum(math.exp(f) for f in row))
    for row in made.tolist():
        unknown -= math.log(1 / (1 + sum(math.exp(f) for f in row)))
    return known / len(real) + unknown / len(made)
