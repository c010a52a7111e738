"""Scores of classifiers that have a place for the unknown among their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .detector import FormulaDetector, require_positive
from .logits import LogitDetector
from .outputs import clamp_to_finite


def placeholder(logits: Tensor, dummies: Tensor, probability: float | None = None) -> Tensor:
    """Return how far the largest of logits (N, K) is above the largest of dummy logits (N, D).

    max_k f_k − max_j g_j; with ``probability`` T, as in the released code of PROSER (Zhou et al. 2021, where
    T = 1024), max_k p_k − p_dummy of p = softmax((f, max_j g_j) / T). At a high T the latter is the former
    divided by T·(K + 1), to first order.

    >>> placeholder(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5, 0.2]]))
    tensor([1.5000], dtype=torch.float64)
    """
    dummy = dummies.double().amax(dim=1)
    if probability is None:
        return clamp_to_finite(logits.double().amax(dim=1) - dummy)
    p = torch.softmax(torch.cat([logits.double(), dummy[:, None]], dim=1) / probability, dim=1)
    return p[:, :-1].amax(dim=1) - p[:, -1]


def osrci(logits: Tensor) -> Tensor:
    """Return max_k p_k − p_0 of p = softmax(f, 0): the unknown class has the logit 0 (Neal et al. 2018).

    >>> osrci(torch.zeros(1, 4))
    tensor([0.], dtype=torch.float64)
    """
    unknown = torch.zeros_like(logits[:, :1], dtype=torch.float64)
    return placeholder(logits, unknown, probability=1.0)


class Placeholder(FormulaDetector):
    """The largest logit minus the largest dummy logit; ``probability``: see :func:`placeholder`."""

    name = "placeholder"
    needs = frozenset({"logits", "dummies"})

    def __init__(self, probability: float | None = None) -> None:
        self.probability = None if probability is None else require_positive(self.name, probability)

    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        return placeholder(parts["logits"], parts["dummies"], self.probability)

    def settings(self) -> dict[str, Any]:
        return {"probability": self.probability}


class OSRCI(LogitDetector):
    """The probability of the likeliest class minus that of an unknown class whose logit is 0."""

    name = "osrci"

    def score_logits(self, logits: Tensor) -> Tensor:
        return osrci(logits)
