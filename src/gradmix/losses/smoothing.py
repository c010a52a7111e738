"""Cross-entropy with smoothed labels, of which there are two conventions.

    all:     q_c = 1 − ε + ε/K at the true class, ε/K elsewhere (torch's, Szegedy et al. 2016)
    others:  q_c = 1 − ε       at the true class, ε/(K − 1) elsewhere (Vaze et al., OpenAUC, ConOSR)

``others`` with ε is ``all`` with ε·K/(K − 1). With many classes they are close, but published ε of ``others``
are large: ε = 0.9 of 20 classes leaves 0.1 to the true class, 0.145 by the other convention.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError, choose

SPREADS = ("all", "others")


def smooth_targets(labels: Tensor, classes: int, smoothing: float, spread: str = "all") -> Tensor:
    """Return the distributions q (N, K), float32, that stand for labels (N,).

    >>> smooth_targets(torch.tensor([0]), classes=3, smoothing=0.5, spread="others").tolist()
    [[0.5, 0.25, 0.25]]
    """
    _share_of_all(classes, smoothing, spread)  # refuses what cannot be
    if spread == "others":
        true, other = 1 - smoothing, smoothing / max(1, classes - 1)
    else:
        true, other = 1 - smoothing + smoothing / classes, smoothing / classes
    return torch.full((len(labels), classes), other, device=labels.device).scatter_(1, labels[:, None], true)


def smooth_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float, spread: str = "all") -> Tensor:
    """Return the mean of −Σ_c q_c log p_c over logits (N, K) and labels (N,); see the module for q.

    >>> round(smooth_cross_entropy(torch.zeros(1, 20), torch.tensor([3]), 0.9, "others").item(), 4)
    2.9957
    """
    return F.cross_entropy(logits, labels, label_smoothing=_share_of_all(logits.shape[1], smoothing, spread))


def check_smoothing(smoothing: float, spread: str) -> None:
    """Raise UserError unless ε lies in [0, 1) and the convention is one of the two."""
    choose("smoothing_spread", spread, SPREADS)
    if not 0 <= smoothing < 1:
        raise UserError(f"label_smoothing must lie in [0, 1), not {smoothing}")


def _share_of_all(classes: int, smoothing: float, spread: str) -> float:
    """Return torch's ε of the same distributions."""
    if choose("smoothing_spread", spread, SPREADS) == "all" or not smoothing:
        return smoothing
    if classes < 2 or smoothing > 1 - 1 / classes:
        raise UserError(
            f"label_smoothing {smoothing} leaves less to the true class than to each of the {classes - 1} "
            "others; lower it, or take smoothing_spread: all"
        )
    return min(1.0, smoothing * classes / (classes - 1))
