"""OpenMax, one image and one class at a time, with scipy's fits of the tails."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats


def distance(f: np.ndarray, mean: np.ndarray, kind: str) -> float:
    euclidean = math.sqrt(sum((a - b) ** 2 for a, b in zip(f, mean, strict=True)))
    cosine = 1 - float(f @ mean) / math.sqrt(float(f @ f) * float(mean @ mean))
    return {"euclidean": euclidean, "cosine": cosine, "eucos": euclidean / 200 + cosine}[kind]


def probability_function(tail: list[float], shift: float | str):
    """w(d) of the tail: scipy's Gumbel distribution of minima, or its Weibull distribution."""
    if shift == "libmr":
        m, b = stats.gumbel_l.fit(tail)
        return lambda d: stats.gumbel_l.cdf(d, m, b)
    low = min(tail)
    shape, _, scale = stats.weibull_min.fit([d - low + shift for d in tail], floc=0)
    return lambda d: stats.weibull_min.cdf(d - low + shift, shape, 0, scale)


def openmax(
    test: np.ndarray,
    train: np.ndarray,
    labels: list[int],
    tail: int,
    alpha: int,
    kind: str = "euclidean",
    shift: float | str = "libmr",
    shift_logits: bool = True,
) -> tuple[list[float], list[int]]:
    """P(unknown) and label of each test image."""
    classes = range(train.shape[1])
    means, w = [], []
    for c in classes:
        right = [f for f, y in zip(train, labels, strict=True) if y == c and int(np.argmax(f)) == c]
        mean = sum(right) / len(right)
        largest = sorted((distance(f, mean, kind) for f in right), reverse=True)[:tail]
        means.append(mean)
        w.append(probability_function(largest, shift))
    unknown, named = [], []
    for f in test:
        distances = [distance(f, means[c], kind) for c in classes]
        f = f - min(f) if shift_logits else f
        ranked = sorted(classes, key=lambda c: -f[c])
        revised = list(f)
        for i, c in enumerate(ranked[:alpha], start=1):
            revised[c] = f[c] * (1 - (alpha + 1 - i) / alpha * w[c](distances[c]))
        of_unknown = sum(a - b for a, b in zip(f, revised, strict=True))
        every = [math.exp(x) for x in (of_unknown, *revised)]
        unknown.append(every[0] / sum(every))
        named.append(int(np.argmax(revised)))
    return unknown, named
