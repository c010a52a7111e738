"""KL matching (Hendrycks et al. 2022, "Scaling Out-of-Distribution Detection for Real-World Settings")."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from .learned import LearnedDetector, chunks
from .outputs import Outputs


class KLMatching(LearnedDetector):
    """Minus the divergence of the softmax from the nearest typical one.

    score = −min_c KL(p ‖ d_c), d_c = the mean p of the training images that are *predicted* c; a class that
    is never predicted has none. No settings.
    """

    name = "klm"
    needs = frozenset({"logits"})
    learned: ClassVar[tuple[str, ...]] = ("typical",)
    typical: Tensor  # (C', K) float64, one row per predicted class

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.logits is not None
        total = torch.zeros((num_classes, num_classes), dtype=torch.float64, device=train.logits.device)
        count = torch.zeros(num_classes, dtype=torch.float64, device=train.logits.device)
        for part in chunks(len(train.logits)):
            p = torch.softmax(train.logits[part].double(), dim=1)
            predicted = train.logits[part].argmax(dim=1)
            total.index_add_(0, predicted, p)
            count += torch.bincount(predicted, minlength=num_classes)
        self.typical = total[count > 0] / count[count > 0, None]

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.logits is not None
        p = torch.softmax(rows.logits.double(), dim=1)
        # KL(p ‖ d) = Σ p log p − Σ p log d; a probability that underflowed counts as the smallest there is.
        log_typical = self.typical.clamp_min(torch.finfo(torch.float64).tiny).log()
        divergence = torch.xlogy(p, p).sum(dim=1, keepdim=True) - p @ log_typical.T
        return -divergence.amin(dim=1)
