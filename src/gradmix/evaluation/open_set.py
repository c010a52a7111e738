"""A recognizer against known and unknown test images, by every detector that applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import ImageSet
from ..detection import KNN, SCORE_NORMALIZATIONS, Detector, Outputs, Scores, detector_names, make_detector
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


def applicable_detectors(recognizer: Recognizer) -> list[str]:
    """Return the names of all scores that this model can compute, its own first.

    Neighbours come once by each normalization; those of the model's own settings are called ``knn``.
    """
    own = recognizer.decision.detector.name
    others = [f"{KNN.name}:{how}" for how in SCORE_NORMALIZATIONS if how != recognizer.index.normalize]
    others += [name for name in detector_names() if ":" not in name and name != own]
    return [own, *(name for name in others if _can_compute(recognizer, name))]


def _can_compute(recognizer: Recognizer, name: str) -> bool:
    try:
        detector = make_detector(name)
        if not detector.learns:
            return detector.needs <= recognizer.parts
        if not isinstance(detector, KNN):
            recognizer.training_outputs(detector)
    except UserError:
        return False
    return True


def evaluate_open_set(
    recognizer: Recognizer,
    known: ImageSet,
    unknown: ImageSet,
    train: ImageSet | None = None,
    detectors: Sequence[str] = (),
    cache: bool = True,
) -> OpenSetResult:
    """Score labelled ``known`` and foreign ``unknown`` images by the model's own detector and by others.

    The network runs once over each set, whatever the number of detectors, and with ``cache`` not at all over
    images that it has seen before. ``knn:none`` is the model's own index with another normalization. The
    other detectors learn from the training features that the model holds, or from ``train`` if it is given.
    """
    own = recognizer.decision.detector.name
    names = [own, *(choose("detector", name, detector_names()) for name in detectors if name != own)]
    on_known = recognizer.outputs(known, "features of the known test images", cache)
    on_unknown = recognizer.outputs(unknown, "features of the unknown test images", cache)
    (of_known, threshold), (of_unknown, _) = map(recognizer.decision.margins, (on_known, on_unknown))
    metrics = {own: open_set_metrics(of_known, on_known.labels, of_unknown, threshold)}
    learned_from: Outputs | None = None
    for name in names[1:]:
        detector: Detector = make_detector(name)
        detector.require(on_known)
        if isinstance(detector, KNN):
            how = {"normalize": detector.normalize} if ":" in name else {}
            detector = recognizer.index.with_settings(**how)
        else:
            if train is not None and learned_from is None:
                learned_from = recognizer.outputs(train, "features of the training images", cache)
            source = recognizer.training_outputs(detector) if learned_from is None else learned_from
            detector.fit(source, len(recognizer.class_names))
        # Only the model's own score has a threshold, and so metrics that depend on one.
        metrics[name] = open_set_metrics(
            detector.score(on_known), on_known.labels, detector.score(on_unknown)
        )
    return OpenSetResult(metrics, of_known, of_unknown, on_known.labels, threshold)


def accepted(scores: Scores, threshold: float) -> Tensor:
    """Return labels (N,) with -1 where the score is below the threshold."""
    return torch.where(scores.score >= threshold, scores.label, -1)
