"""From the similarities to all classes to one score: higher = more likely known.

The paper divides the winner's similarity by the sum over classes. Cosines can be negative, so that sum can
reach zero or fall below it, where the printed ratio explodes or changes sign. Four ways, one function.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Normalization = Literal["shifted", "sum", "softmax", "none"]
NORMALIZATIONS: tuple[str, ...] = get_args(Normalization)

# Sums below this (in units of k) are taken for this. It is far below any sum that says something: a
# single class at 84 degrees from the image gives 0.1.
_SMALLEST_SUM = 1e-3


def known_score(similarity: Tensor, k: int, normalize: str = "shifted", temperature: float = 0.1) -> Tensor:
    """Score (N,) float64 from d_c (N, C), each the sum of k cosines; -inf marks a class without images.

    - ``sum``      max_c d_c / max(Σ_c d_c, 0.001·k). The printed score wherever Σ_c d_c ≥ 0.001·k. Below,
      the denominator stays at 0.001·k: the score keeps the sign of max_c d_c, grows with it, and joins the
      printed branch without a jump; its size is at most 1000.
    - ``shifted``  the same with every cosine mapped to (1 + cos)/2 ≥ 0, that is d_c to (k + d_c)/2.
      In [0, 1]; zero only for an image opposite to everything.
    - ``softmax``  max_c softmax(d_c / (k·temperature)).
    - ``none``     max_c d_c.

    A share among one says nothing (it is always 1): where a single class has images, ``shifted`` and
    ``softmax`` return the mean similarity to it, (1 + d/k)/2, so that one-class detection works.

    >>> known_score(torch.tensor([[3.0, 0.0, -3.0]]), k=3)
    tensor([0.6667], dtype=torch.float64)
    >>> known_score(torch.tensor([[3.0, -3.0, -3.0]]), k=3, normalize="sum")
    tensor([1000.], dtype=torch.float64)
    """
    d = similarity.double()
    present = d > -torch.inf
    if normalize == "none":
        return d.amax(dim=1)
    if normalize == "sum":
        return _share(d, present, k)
    shifted = (k + d) / 2
    if normalize == "softmax":
        share = torch.softmax(d / (k * temperature), dim=1).amax(dim=1)
    else:
        share = _share(shifted, present, k)
    alone = present.sum(dim=1) == 1
    return torch.where(alone, shifted.amax(dim=1) / k, share)


def _share(values: Tensor, present: Tensor, k: int) -> Tensor:
    total = torch.where(present, values, torch.zeros_like(values)).sum(dim=1)
    return values.amax(dim=1) / total.clamp_min(_SMALLEST_SUM * k)
