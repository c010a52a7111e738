"""Closeness to the weights of the predicted class (NCI), after Liu & Qin 2025, "Detecting Out-of-Distribution
through the Lens of Neural Collapse"."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..errors import UserError
from .learned import LearnedDetector, mean_of_rows
from .outputs import Outputs

_SMALLEST = 1e-12  # length of h − μ


class NCI(LearnedDetector):
    """How far the centred activation points along the weights of its class, and how large it is.

    score = w_ŷ·(h − μ)/‖h − μ‖ + α‖h‖₁, μ the mean h of the training images; ``alpha`` (0.0001).
    """

    name = "nci"
    needs = frozenset({"penultimate", "logits", "head"})
    learned: ClassVar[tuple[str, ...]] = ("mean",)
    mean: Tensor  # (d_h,) float64

    def __init__(self, alpha: float = 0.0001) -> None:
        if not 0 <= alpha < float("inf"):
            raise UserError(f"nci needs alpha of at least 0, not {alpha}")
        self.alpha = alpha

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        self.mean = mean_of_rows(train.penultimate)

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.penultimate is not None
        assert rows.logits is not None
        assert rows.head is not None
        h = rows.penultimate.double()
        away = h - self.mean
        along = (rows.head.weight.double()[rows.logits.argmax(dim=1)] * away).sum(dim=1)
        length: Tensor = torch.linalg.vector_norm(away, dim=1).clamp_min(_SMALLEST)
        return along / length + self.alpha * h.abs().sum(dim=1)
