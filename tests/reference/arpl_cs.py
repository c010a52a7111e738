"""The confusion of ARPL-CS, image by image and number by number."""

from __future__ import annotations

import math

from torch import Tensor


def confusion(distances: Tensor) -> float:
    """exp of the mean over images of Σ_k p_k log p_k, with p the softmax of an image's distances."""
    total = 0.0
    for row in distances.tolist():
        whole = sum(math.exp(d) for d in row)
        for d in row:
            p = math.exp(d) / whole
            total += p * math.log(p)
    return math.exp(total / len(distances))
