"""OpenAUC's ranking term pair by pair."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def ranking_term(
    logits: Tensor, labels: Sequence[int], mixed_logits: Tensor, of_two: Sequence[bool], all_pairs: bool
) -> float:
    """The mean of (max f̃_j − max f_i + 1)² over images i named right and mixes j of two classes."""
    total, count = 0.0, 0
    for i, row in enumerate(logits.tolist()):
        if row.index(max(row)) != labels[i]:
            continue
        for j, mixed in enumerate(mixed_logits.tolist()):
            if of_two[j] and (all_pairs or i == j):
                total += (max(mixed) - max(row) + 1) ** 2
                count += 1
    return total / count if count else 0.0
