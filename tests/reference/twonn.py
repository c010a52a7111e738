"""TwoNN by a double loop over points and a sum over ratios."""

from __future__ import annotations

import math


def two_nearest(points) -> list[tuple[float, float]]:
    pairs = []
    for i, a in enumerate(points):
        gaps = sorted(math.dist(a, b) for j, b in enumerate(points) if j != i)
        pairs.append((gaps[0], gaps[1]))
    return pairs


def two_nn(points, discard: float = 0.1) -> float:
    ratios = sorted(second / first for first, second in two_nearest(points))
    n = len(ratios)
    kept = min(int(n * (1 - discard)), n - 1)
    x = [math.log(mu) for mu in ratios[:kept]]
    y = [-math.log(1 - (i + 1) / n) for i in range(kept)]
    return sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x)
