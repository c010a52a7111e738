"""Every metric by looping over pairs or over distinct thresholds."""

from __future__ import annotations

import math


def auroc(known, unknown) -> float:
    wins = sum((a > b) + 0.5 * (a == b) for a in known for b in unknown)
    return wins / (len(known) * len(unknown))


def thresholds(known, unknown) -> list[float]:
    """From "accept nothing" to "accept all"."""
    return [math.inf, *sorted({*known, *unknown}, reverse=True)]


def rate(scores, t: float) -> float:
    return sum(s >= t for s in scores) / len(scores)


def average_precision(positive, negative) -> float:
    area, recall = 0.0, 0.0
    for t in sorted({*positive, *negative}, reverse=True):
        tp, fp = sum(s >= t for s in positive), sum(s >= t for s in negative)
        area += (tp / len(positive) - recall) * tp / (tp + fp)
        recall = tp / len(positive)
    return area


def tnr_at_tpr(known, unknown, tpr: float) -> float:
    t = max(t for t in thresholds(known, unknown) if rate(known, t) >= tpr - 1e-12)
    return 1 - rate(unknown, t)


def fpr_at_unknown(known, unknown, share: float) -> float:
    """Known rejected at the smallest threshold that rejects so many unknown."""
    t = min(t for t in thresholds(known, unknown) if 1 - rate(unknown, t) >= share - 1e-12)
    return 1 - rate(known, t)


def dtacc(known, unknown) -> float:
    return max((rate(known, t) + 1 - rate(unknown, t)) / 2 for t in thresholds(known, unknown))


def detection_accuracy(known, unknown) -> float:
    right = [sum(s >= t for s in known) + sum(s < t for s in unknown) for t in thresholds(known, unknown)]
    return max(right) / (len(known) + len(unknown))


def oscr(known, correct, unknown) -> float:
    area, last_ccr, last_fpr = 0.0, 0.0, 0.0
    for t in thresholds(known, unknown):
        ccr = sum(s >= t and c for s, c in zip(known, correct, strict=True)) / len(known)
        fpr = rate(unknown, t)
        area += (fpr - last_fpr) * (ccr + last_ccr) / 2
        last_ccr, last_fpr = ccr, fpr
    return area


def macro_f1(true, predicted, num_classes: int) -> float:
    scores = []
    for c in range(-1, num_classes):
        tp = sum(t == c and p == c for t, p in zip(true, predicted, strict=True))
        wrong = sum((t == c) != (p == c) for t, p in zip(true, predicted, strict=True))
        if tp + wrong:
            scores.append(2 * tp / (2 * tp + wrong))
    return sum(scores) / len(scores)
