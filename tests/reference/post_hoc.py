"""The post-hoc scores, one image and one number at a time, as their papers print them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tests.reference.detectors import energy, softmax

Rows = np.ndarray


@dataclass(frozen=True)
class Data:
    """Training images (h, labels, logits) and the head (W, b), all float64."""

    h: Rows
    y: Rows
    f: Rows
    w: Rows
    b: Rows


def cosine(a: Rows, b: Rows) -> float:
    return float(a @ b) / (math.sqrt(a @ a) * math.sqrt(b @ b))


def gen(f: Rows, gamma: float = 0.1, largest: int = 100) -> float:
    p = sorted(softmax(list(f)), reverse=True)[:largest]
    return -sum(x**gamma * (1 - x) ** gamma for x in p)


def nll(f: Rows, y: Rows, temperature: float) -> float:
    return float(np.mean([-math.log(softmax(list(r / temperature))[c]) for r, c in zip(f, y, strict=True)]))


def klm(f: Rows, train: Data) -> float:
    p = softmax(list(f))
    predicted = [int(np.argmax(row)) for row in train.f]
    divergences = []
    for c in set(predicted):
        members = [softmax(list(row)) for row, named in zip(train.f, predicted, strict=True) if named == c]
        typical = [sum(m[k] for m in members) / len(members) for k in range(len(p))]
        divergences.append(sum(a * math.log(a / d) for a, d in zip(p, typical, strict=True)))
    return -min(divergences)


def knn_distance(h: Rows, train: Data, k: int) -> float:
    u = h / math.sqrt(h @ h)
    gaps = sorted(math.dist(u, other / math.sqrt(other @ other)) for other in train.h)
    return -gaps[k - 1]


def rmds(h: Rows, train: Data) -> float:
    d = train.h.shape[1]
    means = {int(c): train.h[train.y == c].mean(axis=0) for c in set(train.y.tolist())}
    within, total, mean = np.zeros((d, d)), np.zeros((d, d)), train.h.mean(axis=0)
    for row, label in zip(train.h, train.y, strict=True):
        within += np.outer(row - means[int(label)], row - means[int(label)]) / len(train.h)
        total += np.outer(row - mean, row - mean) / len(train.h)
    of_all = (h - mean) @ np.linalg.inv(total) @ (h - mean)
    return -min(float((h - m) @ np.linalg.inv(within) @ (h - m) - of_all) for m in means.values())


def she(h: Rows, f: Rows, train: Data) -> float:
    best = int(np.argmax(f))
    rows = zip(train.h, train.y, train.f, strict=True)
    right = [row for row, label, logits in rows if label == best and int(np.argmax(logits)) == best]
    return float(h @ np.mean(right, axis=0))


def _residual(h: Rows, train: Data, dim: int) -> float:
    origin = -np.linalg.pinv(train.w) @ train.b
    _, _, axes = np.linalg.svd(train.h - origin)  # rows, the leading ones first
    return math.sqrt(sum(float((h - origin) @ axis) ** 2 for axis in axes[dim:]))


def residual(h: Rows, train: Data, dim: int) -> float:
    return -_residual(h, train, dim)


def vim(h: Rows, f: Rows, train: Data, dim: int) -> float:
    alpha = sum(max(row) for row in train.f) / sum(_residual(row, train, dim) for row in train.h)
    return energy(list(f)) - alpha * _residual(h, train, dim)


def neco(h: Rows, f: Rows | None, train: Data, variance: float = 0.9) -> float:
    mean, deviation = train.h.mean(axis=0), train.h.std(axis=0)
    s = (h - mean) / deviation
    _, sizes, axes = np.linalg.svd((train.h - mean) / deviation, full_matrices=False)
    dim, held = 0, 0.0
    while held < variance * sum(sizes**2):
        held += sizes[dim] ** 2
        dim += 1
    share = math.sqrt(sum(float(s @ axis) ** 2 for axis in axes[:dim])) / math.sqrt(s @ s)
    return share if f is None else share * max(f)


def fdbd(h: Rows, f: Rows, train: Data) -> float:
    best = int(np.argmax(f))
    others = [c for c in range(len(f)) if c != best]
    gaps = [abs(f[best] - f[c]) / math.dist(train.w[best], train.w[c]) for c in others]
    return sum(gaps) / len(gaps) / math.dist(h, train.h.mean(axis=0))


def nci(h: Rows, f: Rows, train: Data, alpha: float = 0.0001) -> float:
    away = h - train.h.mean(axis=0)
    return float(train.w[int(np.argmax(f))] @ away) / math.sqrt(away @ away) + alpha * sum(abs(h))


def nnguide(h: Rows, f: Rows, train: Data, k: int) -> float:
    """The bank: all training images."""
    weighted = [energy(list(g)) * cosine(h, other) for other, g in zip(train.h, train.f, strict=True)]
    return energy(list(f)) * sum(sorted(weighted)[-k:]) / k


def relation(h: Rows, f: Rows, train: Data, power: int = 4) -> float:
    p, total = np.array(softmax(list(f))), 0.0
    for other, g in zip(train.h, train.f, strict=True):
        total += max(0.0, cosine(h, other)) ** power * float(p @ np.array(softmax(list(g))))
    return total


def react(h: Rows, train: Data, clip: float = 0.9) -> float:
    limit = np.quantile(train.h, clip)
    return energy(list(train.w @ np.array([min(x, limit) for x in h]) + train.b))


def vra(h: Rows, train: Data, low: float = 0.6, high: float = 0.95) -> float:
    a, b = np.quantile(train.h, low), np.quantile(train.h, high)
    return energy(list(train.w @ np.array([0.0 if x < a else min(x, b) for x in h]) + train.b))


def ash(h: Rows, train: Data, prune: float) -> float:
    kept = sorted(range(len(h)), key=lambda i: -h[i])[: len(h) - round(prune * len(h))]
    factor = math.exp(sum(h) / sum(h[i] for i in kept))
    shaped = np.array([h[i] * factor if i in kept else 0.0 for i in range(len(h))])
    return energy(list(train.w @ shaped + train.b))


def scale(h: Rows, train: Data, prune: float = 0.85) -> float:
    kept = sorted(h)[-(len(h) - round(prune * len(h))) :]
    return energy(list(train.w @ (h * math.exp(sum(h) / sum(kept))) + train.b))


def dice(h: Rows, train: Data, keep: float = 0.3) -> float:
    contribution = train.w * train.h.mean(axis=0)
    largest = sorted(contribution.flatten())[-round(keep * contribution.size) :]
    masked = np.where(contribution >= largest[0], train.w, 0.0)
    return energy(list(masked @ h + train.b))
