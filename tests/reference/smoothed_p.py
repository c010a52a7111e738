"""p-values whose ties are broken by chance: exactly uniform, where p has steps."""

from __future__ import annotations

import torch
from torch import Tensor


def smoothed(known: Tensor, score: Tensor, generator: torch.Generator) -> Tensor:
    """Return p̃ = (#{s_i < s} + U (1 + #{s_i = s})) / (n + 1) of scores (N,) among known ones (n,)."""
    known, score = known.double().sort().values, score.double()
    below = torch.searchsorted(known, score)
    equal = torch.searchsorted(known, score, right=True) - below
    chance = torch.rand(len(score), generator=generator, dtype=torch.float64)
    return (below + chance * (1 + equal)) / (len(known) + 1)
