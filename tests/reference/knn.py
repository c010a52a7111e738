"""Nearest neighbours by loops, straight from the definition."""

from __future__ import annotations

import math


def cosine(a: list[float], b: list[float]) -> float:
    length = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / length if length > 0 else 0.0


def knn_similarity(test, train, labels, num_classes: int, k: int, own=None) -> list[list[float]]:
    """d_c for each test feature; ``own[i]`` is the training image that test image i is, to be left out."""
    table = []
    for i, z in enumerate(test):
        row = []
        for c in range(num_classes):
            near = [
                cosine(z, w)
                for j, (w, y) in enumerate(zip(train, labels, strict=True))
                if y == c and (own is None or own[i] != j)
            ]
            near = sorted(near, reverse=True)[:k]
            row.append(sum(near) / len(near) * k if near else -math.inf)
        table.append(row)
    return table


def known_score(row: list[float], k: int, normalize: str, temperature: float) -> float:
    present = [d for d in row if d > -math.inf]
    if normalize == "none":
        return max(present)
    if normalize == "sum":
        return max(present) / max(sum(present), 0.001 * k)
    if len(present) == 1:
        return (1 + present[0] / k) / 2
    if normalize == "softmax":
        weights = [math.exp(d / k / temperature) for d in present]
        return max(weights) / sum(weights)
    shifted = [(k + d) / 2 for d in present]
    return max(shifted) / max(sum(shifted), 0.001 * k)
