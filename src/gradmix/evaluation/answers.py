"""The model's answers, counted: known images accepted and named right, unknown images rejected."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..detection import Scores
from .open_set import OpenSetResult


@dataclass(frozen=True)
class AnswerCounts:
    """Of ``known`` images so many are ``accepted``, and ``right``: accepted under their own name; …

    … and of ``unknown`` images so many are ``rejected``, also by the name of the set, as shares of 1.
    """

    known: int
    accepted: int
    right: int
    unknown: int = 0
    rejected: int = 0
    sets: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        """Say it in one line.

        >>> print(AnswerCounts(60, 57, 54, 9, 6))
        known images accepted: 95.0 % (57 of 60), named right 90.0 %; unknown images rejected: 66.7 % (6 of 9)
        """
        known = (
            f"known images accepted: {_share(self.accepted, self.known)} ({self.accepted} of {self.known}), "
            f"named right {_share(self.right, self.known)}"
        )
        if not self.unknown:
            return known
        each = ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.sets)
        return (
            f"{known}; unknown images rejected: {_share(self.rejected, self.unknown)} "
            f"({self.rejected} of {self.unknown}{f': {each}' if each else ''})"
        )


def count_answers(result: OpenSetResult) -> AnswerCounts:
    """Count the decisions of the model's own detector at its threshold."""
    known = count_known(result.known, result.known_labels, result.threshold)
    own = next(iter(result.metrics))
    sets = tuple((name, found[own].get("unknown_rejected", 0.0)) for name, found in result.sets.items())
    rejected = int((result.unknown.score < result.threshold).sum())
    return AnswerCounts(known.known, known.accepted, known.right, len(result.unknown.score), rejected, sets)


def count_known(scores: Scores, labels: Tensor, threshold: float) -> AnswerCounts:
    """Count decisions about known images alone."""
    accepted = scores.score >= threshold
    return AnswerCounts(len(labels), int(accepted.sum()), int((accepted & (scores.label == labels)).sum()))


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"
