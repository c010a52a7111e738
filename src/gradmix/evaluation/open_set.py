"""A recognizer against known and unknown test images, by every detector that applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import ImageSet
from ..detection import DETECTORS, NORMALIZATIONS, Detector, Outputs, Scores, make_detector
from ..errors import UserError, choose
from ..recognition import Recognizer
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
    cache: bool = True,
) -> OpenSetResult:
    """Score labelled ``known`` and foreign ``unknown`` images.

    The network runs once over each set, whatever the number of detectors, and with ``cache`` not at all over
    images that it has seen before. ``knn:none`` is the model's own
    index with another normalisation. The other detectors learn from the training images, so ``train`` is
    needed for them.
    """
    known_names = [*DETECTORS, *(f"knn:{n}" for n in NORMALIZATIONS)]
    names = ["knn", *(choose("detector", name, known_names) for name in detectors if name != "knn")]
    on_known = recognizer.outputs(known, "features of the known test images", cache)
    on_unknown = recognizer.outputs(unknown, "features of the unknown test images", cache)
    on_train: Outputs | None = None
    metrics: dict[str, dict[str, float]] = {}
    own: tuple[Scores, Scores, float] | None = None
    for name in names:
        detector: Detector = recognizer.knn
        if name.startswith("knn:"):
            detector = recognizer.knn.with_normalize(name.removeprefix("knn:"))
        elif name != "knn":
            detector = make_detector(name)
            if detector.needs_logits and on_known.logits is None:
                continue  # MSP and its kin need a classifier, which contrastive methods do not have
            if train is None:
                raise UserError(f"detector {name} learns from the training images, which were not given")
            if on_train is None:
                on_train = recognizer.outputs(train, "features of the training images", cache)
            detector.fit(on_train, len(recognizer.class_names))
        threshold = None
        if name == "knn":  # only the model's own score has a threshold, and so metrics that depend on one
            (of_known, threshold), (of_unknown, _) = map(recognizer.decisive, (on_known, on_unknown))
            own = (of_known, of_unknown, threshold)
        else:
            of_known, of_unknown = detector.score(on_known), detector.score(on_unknown)
        metrics[name] = open_set_metrics(of_known, on_known.labels, of_unknown, threshold)
    assert own is not None
    of_known, of_unknown, cut = own
    return OpenSetResult(metrics, of_known, of_unknown, on_known.labels, cut)


def accepted(scores: Scores, threshold: float) -> Tensor:
    """(N,) labels with -1 where the score is below the threshold."""
    return torch.where(scores.score >= threshold, scores.label, -1)
