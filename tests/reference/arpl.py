"""ARPL image by image and number by number, as the paper and the released code have it."""

from __future__ import annotations

import math

from torch import Tensor


def arpl_loss(
    z: Tensor, points: Tensor, radius: float, labels: Tensor, weight: float, margin: float, smoothing: float
) -> float:
    """CE of d_k − z·P_k plus ``weight`` times the mean of max(0, d_y − R + margin)."""
    classes, dim = points.shape
    ce = outside = 0.0
    for row, label in zip(z.tolist(), labels.tolist(), strict=True):
        distances, logits = [], []
        for point in points.tolist():
            distance = sum((a - b) ** 2 for a, b in zip(row, point, strict=True)) / dim
            distances.append(distance)
            logits.append(distance - sum(a * b for a, b in zip(row, point, strict=True)))
        total = math.log(sum(math.exp(f) for f in logits))
        for k in range(classes):
            target = smoothing / classes + (1 - smoothing) * (k == label)
            ce += target * (total - logits[k])
        outside += max(0.0, distances[label] - radius + margin)
    return (ce + weight * outside) / len(z)
