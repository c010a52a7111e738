"""Simplified Hopfield energy (SHE), after Zhang et al. 2023, "Out-of-Distribution Detection based on
In-Distribution Data Patterns Memorization with Modern Hopfield Energy"."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from .learned import LearnedDetector, mean_of_rows
from .nno import class_means
from .outputs import Outputs


class SHE(LearnedDetector):
    """Inner product with the typical activation of the predicted class.

    score = h · s_ŷ, s_c = the mean h of the training images of class c that the network names right. A class
    with none takes the mean of its training images, and one without images that of all. No settings.
    """

    name = "she"
    learned: ClassVar[tuple[str, ...]] = ("stored",)
    stored: Tensor  # (K, d_h) float64

    def learn_from(self, train: Outputs, num_classes: int) -> None:
        assert train.penultimate is not None
        assert train.logits is not None
        h, labels = train.penultimate, train.labels
        right = train.logits.argmax(dim=1) == labels
        # Those named wrong are a class of their own for the moment, which copies no activations.
        stored = class_means(h, labels.where(right, num_classes), num_classes + 1)[:num_classes]
        for fallback in (class_means(h, labels, num_classes), mean_of_rows(h)[None].expand_as(stored)):
            stored = stored.where(stored.isfinite().all(dim=1, keepdim=True), fallback)
        self.stored = stored.contiguous()

    def score_rows(self, rows: Outputs) -> Tensor:
        assert rows.penultimate is not None
        assert rows.logits is not None
        return (rows.penultimate.double() * self.stored[rows.logits.argmax(dim=1)]).sum(dim=1)
