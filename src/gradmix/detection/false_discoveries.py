"""Of a batch of images, which to call unknown so that few of these are known."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import UserError


def control_false_discoveries(p_values: Tensor | Sequence[float], rate: float) -> Tensor:
    """Return which images (N,) bool to call unknown, so that at most ``rate`` of these are known, on average.

    Benjamini and Hochberg (1995): of the p-values in order, all up to the largest p_(k) <= rate · k / N. With
    p-values that compare with the same known images the bound on the average share still holds, for they
    depend on each other positively (Bates et al. 2023, theorem 2); it is over held-out images and batch.

    >>> control_false_discoveries([0.01, 0.02, 0.04, 0.5], 0.1).tolist()
    [True, True, True, False]
    """
    p = torch.as_tensor(p_values, dtype=torch.float64)
    values, counts = torch.unique(p, return_counts=True)
    return p <= find_cut(values.tolist(), counts.tolist(), rate)


def find_cut(values: Sequence[float], counts: Sequence[int], rate: float) -> float:
    """Return the largest of ascending p-values that Benjamini and Hochberg reject; 0 if they reject none.

    ``counts``: how many images have each value, so that any number of images need no more memory than there
    are different values.
    """
    check_fdr(rate)
    cut, rank, total = 0.0, 0, sum(counts)
    for value, count in zip(values, counts, strict=True):
        rank += count
        if value <= rate * rank / total:
            cut = value
    return cut


def check_fdr(rate: float) -> float:
    """Return the share of false discoveries that is allowed, or raise UserError if it is none."""
    if not 0 < rate < 1:
        raise UserError(f"fdr must lie between 0 and 1, not {rate}")
    return rate
