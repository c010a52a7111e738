"""PROSER's three terms image by image."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor


def cross_entropy(logits: Sequence[float], target: int) -> float:
    return math.log(sum(math.exp(f) for f in logits)) - logits[target]


def proser_terms(
    logits: Tensor, dummies: Tensor, labels: Sequence[int], half: int, used: Sequence[bool]
) -> tuple[float, float, float]:
    """(CE of the second half, CE of the dummy there without the true class, CE of the dummy for mixes)."""
    known = runner_up = mixed = 0.0
    for i, (row, dummy) in enumerate(zip(logits.tolist(), dummies.tolist(), strict=True)):
        answers = [*row, max(dummy)]
        if i >= half:
            known += cross_entropy(answers, labels[i])
            others = [f for k, f in enumerate(answers) if k != labels[i]]
            runner_up += cross_entropy(others, len(others) - 1)
        elif used[i]:
            mixed += cross_entropy(answers, len(row))
    second = len(labels) - half
    return known / second, runner_up / second, mixed / max(sum(used[:half]), 1)
