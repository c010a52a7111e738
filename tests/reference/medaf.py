"""MEDAF image by image, expert by expert and position by position."""

from __future__ import annotations

import math

from torch import Tensor


def cross_entropy(logits: list[float], label: int) -> float:
    return math.log(sum(math.exp(f) for f in logits)) - logits[label]


def length(values: list[float]) -> float:
    return math.sqrt(sum(v * v for v in values))


def diversity(maps: list[list[float]], how: str) -> float:
    """D of one image, given each expert's map of its class, position by position."""
    above = []
    for values in maps:
        unit = [v / length(values) for v in values]
        mean = sum(unit) / len(unit)
        above.append([max(0.0, u - mean) for u in unit])
    total = 0.0
    for i in range(len(above)):
        for j in range(i + 1, len(above)):
            pairs = list(zip(above[i], above[j], strict=True))
            if how == "released":  # the cosine of two single numbers, then the mean over positions
                total += sum(1.0 for a, b in pairs if a * b > 0) / len(pairs)
            else:
                total += sum(a * b for a, b in pairs) / (length(above[i]) * length(above[j]))
    return total


def medaf_losses(
    maps: Tensor, weights: Tensor, head: Tensor, labels: Tensor, how: str = "paper"
) -> dict[str, float]:
    """The three terms, given maps (N, E, d, h, w), the gate's (N, E) and the head's weight (K, E·d)."""
    _, experts, dim = maps.shape[:3]
    parts = {"experts": 0.0, "gate": 0.0, "diversity": 0.0}
    for image, shares, label in zip(maps, weights.tolist(), labels.tolist(), strict=True):
        gated = [0.0] * len(head)
        own = []
        for i in range(experts):
            logits = []
            for k, row in enumerate(head.tolist()):
                block = row[i * dim : (i + 1) * dim]
                positions = image[i].flatten(1).T.tolist()
                class_map = [sum(w * a for w, a in zip(block, at, strict=True)) for at in positions]
                logits.append(sum(class_map) / len(class_map))
                gated[k] += shares[i] * logits[k]
                if k == label:
                    own.append(class_map)
            parts["experts"] += cross_entropy(logits, label) / len(maps)
        parts["gate"] += cross_entropy(gated, label) / len(maps)
        parts["diversity"] += diversity(own, how) / len(maps)
    return parts
