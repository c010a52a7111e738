"""The decoder's loss of C2AE, image by image and pixel by pixel."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def decoder_loss(
    x: Tensor, labels: Tensor, other: Tensor, draw: Callable[[int, int], Tensor], weight: float
) -> float:
    """``draw(i, k)`` is image i drawn as of class k; the target under a wrong class is the *other* image."""
    match = nonmatch = 0.0
    for i in range(len(x)):
        match += _mean_error(x[i], draw(i, int(labels[i])))
        j = int(other[i])
        if labels[j] != labels[i]:
            nonmatch += _mean_error(x[j], draw(i, int(labels[j])))
    return (weight * match + (1 - weight) * nonmatch) / len(x)


def _mean_error(target: Tensor, drawn: Tensor) -> float:
    pairs = list(zip(target.flatten().tolist(), drawn.flatten().tolist(), strict=True))
    return sum(abs(a - b) for a, b in pairs) / len(pairs)
