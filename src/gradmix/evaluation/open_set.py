"""A recognizer against known and unknown test images, by every detector that applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import ImageSet
from ..detection import DETECTORS, Detector, Outputs, Scores, calibrate, make_detector
from ..errors import UserError, choose
from ..recognition import Recognizer, extract
from .metrics import open_set_metrics


@dataclass(frozen=True)
class OpenSetResult:
    """``metrics`` by detector (shares of 1); the rest belongs to the model's own detector, the first one."""

    metrics: dict[str, dict[str, float]]
    known: Scores
    unknown: Scores
    known_labels: Tensor
    threshold: float

    @property
    def main(self) -> dict[str, float]:
        """The metrics of the model's own detector."""
        return next(iter(self.metrics.values()))


def evaluate_open_set(
    recognizer: Recognizer,
    known: ImageSet,
    unknown: ImageSet,
    train: ImageSet | None = None,
    detectors: Sequence[str] = ("knn",),
) -> OpenSetResult:
    """Score labelled ``known`` and foreign ``unknown`` images.

    The network runs once over each set, whatever the number of detectors. Detectors other than ``knn``
    learn from the training images, so ``train`` is needed for them.
    """
    names = ["knn", *(choose("detector", name, DETECTORS) for name in detectors if name != "knn")]
    on_known = recognizer.outputs(known, "features of the known test images")
    on_unknown = recognizer.outputs(unknown, "features of the unknown test images")
    on_train: Outputs | None = None
    metrics: dict[str, dict[str, float]] = {}
    own: tuple[Scores, Scores] | None = None
    for name in names:
        detector: Detector = recognizer.knn
        threshold = recognizer.threshold.value
        if name != "knn":
            detector = make_detector(name)
            if detector.needs_logits and on_known.logits is None:
                continue  # MSP and its kin need a classifier, which contrastive methods do not have
            if train is None:
                raise UserError(f"detector {name} learns from the training images, which were not given")
            if on_train is None:
                ready = recognizer.fitted(train)
                on_train = extract(
                    recognizer.network, recognizer.normalizer, ready, what="features of the training images"
                )
            detector.fit(on_train, len(recognizer.class_names))
            # The training images stand in for held-out ones: fair among these detectors, not to be relied on.
            threshold = calibrate(detector.score(on_train).score, recognizer.threshold.false_reject).value
        of_known, of_unknown = detector.score(on_known), detector.score(on_unknown)
        own = own or (of_known, of_unknown)
        metrics[name] = open_set_metrics(of_known, on_known.labels, of_unknown, threshold)
    assert own is not None
    return OpenSetResult(metrics, *own, on_known.labels, recognizer.threshold.value)


def accepted(scores: Scores, threshold: float) -> Tensor:
    """(N,) labels with -1 where the score is below the threshold."""
    return torch.where(scores.score >= threshold, scores.label, -1)
