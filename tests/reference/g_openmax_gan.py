"""Loss of G-OpenMax with a conditional GAN, and OpenMax over K + 1 outputs, number by number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor


def unknown_stage_loss(real: Tensor, labels: Tensor, made: Tensor) -> float:
    """(K · mean CE of real + mean CE of made images) / (K + 1), of outputs (N, K + 1)."""
    classes = real.shape[1] - 1

    def mean(rows: Sequence[Sequence[float]], targets: Sequence[int]) -> float:
        total = 0.0
        for row, target in zip(rows, targets, strict=True):
            total -= row[target] - math.log(sum(math.exp(f) for f in row))
        return total / len(targets)

    known = mean(real.tolist(), labels.tolist())
    return (classes * known + mean(made.tolist(), [classes] * len(made))) / (classes + 1)


def known_log_probability(
    outputs: Sequence[float], w: Sequence[float], alpha: int, shifted: bool = True
) -> tuple[float, int]:
    """log(1 − P(unknown)) of outputs (f_1 … f_K, u) and w_1 … w_K, and the largest revised known one."""
    classes = len(w)
    level = min(outputs) if shifted else 0.0
    alpha = min(alpha, classes + 1)
    order = sorted(range(classes + 1), key=lambda c: -outputs[c])
    revised, removed = list(outputs), 0.0
    for rank, c in enumerate(order, start=1):
        if rank <= alpha and c < classes:
            taken = (alpha + 1 - rank) / alpha * w[c] * (outputs[c] - level)
            revised[c] -= taken
            removed += taken
    known = sum(math.exp(revised[c]) for c in range(classes))
    unknown = math.exp(level + removed) + math.exp(outputs[classes])
    label = max(range(classes), key=lambda c: revised[c])
    return math.log(known / (known + unknown)), label
