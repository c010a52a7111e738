"""Can the network tell how the image was turned? Hendrycks et al. 2019, self-supervised uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from .detector import FormulaDetector
from .outputs import clamp_to_finite


def rotpred(logits: Tensor, rotation: Tensor) -> Tensor:
    """Return KL(U ‖ p) − ¼ Σ_r CE(r), higher where classes and rotations are told with certainty.

    p = softmax of logits (N, K), U uniform: KL(U ‖ p) = −log K − mean_k log p_k. ``rotation`` (N, 4, 4):
    row r has the logits of the rotation head for the image turned by r · 90 degrees, and
    CE(r) = −log softmax(row r)_r. The paper's score is the negative of this one, for anomalies; the released
    code and OpenOOD take both terms in bits, which changes no order.

    >>> rotpred(torch.zeros(1, 3), torch.zeros(1, 4, 4)).exp()
    tensor([0.2500], dtype=torch.float64)
    """
    certainty = -math.log(logits.shape[1]) - torch.log_softmax(logits.double(), dim=1).mean(dim=1)
    right = torch.log_softmax(rotation.double(), dim=2).diagonal(dim1=1, dim2=2)  # (N, 4)
    return clamp_to_finite(certainty + right.mean(dim=1))


class RotPred(FormulaDetector):
    """Certainty of the class, and of the rotation of the image turned four ways."""

    name = "rotpred"
    needs = frozenset({"logits", "rotation"})

    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        return rotpred(parts["logits"], parts["rotation"])
