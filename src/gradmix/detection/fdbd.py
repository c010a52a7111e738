"""Distance to the decision boundaries (fDBD), after Liu & Qin 2024, "Fast Decision Boundary based
Out-of-Distribution Detector"."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from .learned import LearnedDetector, mean_of_rows
from .outputs import Outputs

_SMALLEST = 1e-12  # length of h − mean h: an image at the mean is not infinitely sure


def boundary_distance(logits: Tensor, weight: Tensor) -> Tensor:
    """Return the mean over c ≠ ŷ of |f_ŷ − f_c| / ‖w_ŷ − w_c‖: (N, K), (K, d) -> (N,) float64.

    Classes of equal weights have no boundary between them and are left out; with one class it is 0.

    >>> boundary_distance(torch.tensor([[3.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    tensor([3.], dtype=torch.float64)
    """
    f, w = logits.double(), weight.double()
    best = f.max(dim=1)
    gap = torch.cdist(w, w, compute_mode="donot_use_mm_for_euclid_dist")[best.indices]  # (N, K)
    there = gap > 0
    distance = (best.values[:, None] - f) / gap.where(there, torch.ones_like(gap))
    return distance.where(there, torch.zeros_like(gap)).sum(dim=1) / there.sum(dim=1).clamp_min(1)


class FDBD(LearnedDetector):
    """Mean distance of h to the boundaries of the predicted class, per distance from the training mean.

    score = mean over c ≠ ŷ of |f_ŷ − f_c| / ‖w_ŷ − w_c‖, divided by ‖h − mean h‖. No settings.
    """

    name = "fdbd"
    needs = frozenset({"penultimate", "logits", "head"})
    learned: ClassVar[tuple[str, ...]] = ("mean",)
    mean: Tensor  # (d_h,) float64

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        self.mean = mean_of_rows(train.penultimate)

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.penultimate is not None
        assert rows.logits is not None
        assert rows.head is not None
        away: Tensor = torch.linalg.vector_norm(rows.penultimate.double() - self.mean, dim=1)
        return boundary_distance(rows.logits, rows.head.weight) / away.clamp_min(_SMALLEST)
