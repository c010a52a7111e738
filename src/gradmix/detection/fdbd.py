"""Distance to the decision boundaries (fDBD), after Liu & Qin 2024, "Fast Decision Boundary based
Out-of-Distribution Detector"."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from .learned import LearnedDetector, mean_of_rows
from .outputs import Outputs

_SMALLEST = 1e-12  # length of h − mean h: an image at the mean is not infinitely sure


def weight_gaps(weight: Tensor) -> Tensor:
    """Return ‖w_a − w_b‖ of the weights (K, d) of each two classes: (K, K) float64."""
    w = weight.double()
    return torch.cdist(w, w, compute_mode="donot_use_mm_for_euclid_dist")


def boundary_distance(logits: Tensor, gaps: Tensor) -> Tensor:
    """Return the mean over c ≠ ŷ of |f_ŷ − f_c| / ‖w_ŷ − w_c‖: (N, K), gaps (K, K) -> (N,) float64.

    Classes of equal weights have no boundary between them and are left out; with one class it is 0.

    >>> boundary_distance(torch.tensor([[3.0, 0.0]]), weight_gaps(torch.tensor([[1.0, 0.0], [0.0, 0.0]])))
    tensor([3.], dtype=torch.float64)
    """
    f = logits.double()
    best = f.max(dim=1)
    gap = gaps[best.indices]  # (N, K)
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
    _gaps: tuple[Tensor, Tensor] | None = None  # the weights, and their gaps

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        self.mean = mean_of_rows(train.penultimate)

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.penultimate is not None
        assert rows.logits is not None
        assert rows.head is not None
        away: Tensor = torch.linalg.vector_norm(rows.penultimate.double() - self.mean, dim=1)
        return boundary_distance(rows.logits, self._find_gaps(rows.head.weight)) / away.clamp_min(_SMALLEST)

    def _find_gaps(self, weight: Tensor) -> Tensor:
        """Return the gaps of these weights, which are computed once: an ONNX graph holds the numbers."""
        if self._gaps is None or self._gaps[0] is not weight:
            self._gaps = (weight, weight_gaps(weight))
        return self._gaps[1]
