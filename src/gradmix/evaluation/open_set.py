"""A recognizer against known and unknown test images, by every detector that applies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import ImageSet
from ..detection import (
    KNN,
    SCORE_NORMALIZATIONS,
    Detector,
    Outputs,
    Scores,
    detector_names,
    make_detector,
    resolve_name,
)
from ..errors import UserError
from ..recognition import Recognizer
from ..recognition.calibration import fit_detector, make_detector_for
from .metrics import open_set_metrics

Training = ImageSet | Callable[[], ImageSet]  # the images, or a function that loads them


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


def applicable_detectors(recognizer: Recognizer, train: Training | None = None) -> list[str]:
    """Return the names of all scores that this model can compute, its own first.

    Neighbours come once by each normalization; those of the model's own settings are called ``knn``. Scores
    that learn from more than the features that the model holds are among them if the training images are
    given: a function that loads them is called only if the network gives what such a score needs.
    """
    own = recognizer.decision.detector.name
    others = [f"{KNN.name}:{how}" for how in SCORE_NORMALIZATIONS if how != recognizer.index.normalize]
    others += [name for name in detector_names() if ":" not in name and name != own]

    @functools.cache
    def at_hand() -> bool:
        try:
            return (train() if callable(train) else train) is not None
        except UserError:
            return False

    return [own, *(name for name in others if _can_compute(recognizer, name, at_hand))]


def _can_compute(recognizer: Recognizer, name: str, at_hand: Callable[[], bool]) -> bool:
    detector = make_detector(name)
    if not detector.needs <= recognizer.parts:
        return False
    if detector.needs_held_out and recognizer.calibration is None:
        return False
    if not detector.learns or isinstance(detector, KNN):
        return True
    if not detector.needs <= {"features"} and _wants_images(recognizer, detector):
        return at_hand()
    try:
        recognizer.training_outputs(detector)
    except UserError:
        return False
    return True


def _wants_images(recognizer: Recognizer, detector: Detector) -> bool:
    """Return whether the detector learns from penultimate activations, and the model holds none."""
    wanted = "penultimate" in detector.needs | detector.prefers
    return detector.learns and wanted and not recognizer.holds_penultimate


def evaluate_open_set(
    recognizer: Recognizer,
    known: ImageSet,
    unknown: ImageSet,
    train: Training | None = None,
    detectors: Sequence[str] = (),
    cache: bool = True,
) -> OpenSetResult:
    """Score labelled ``known`` and foreign ``unknown`` images by the model's own detector and by others.

    The network runs once over each set, whatever the number of detectors, and with ``cache`` not at all over
    images that it has seen before. ``knn:none`` is the model's own index with another normalization. The
    other detectors learn from the training features that the model holds, or from ``train`` if it is given;
    a function that loads the training images is called only for detectors that the features do not suffice.
    """
    own = recognizer.decision.detector.name
    others = [name for name in dict.fromkeys(map(resolve_name, detectors)) if name != own]
    on_known = recognizer.outputs(known, "features of the known test images", cache, penultimate=True)
    on_unknown = recognizer.outputs(unknown, "features of the unknown test images", cache, penultimate=True)
    (of_known, threshold), (of_unknown, _) = map(recognizer.decision.margins, (on_known, on_unknown))
    metrics = {own: open_set_metrics(of_known, on_known.labels, of_unknown, threshold)}
    source = _TrainingOutputs(recognizer, train, cache)
    neighbours: tuple[Tensor, Tensor] | None = None  # of one search, for all their normalizations
    for name in others:
        detector = make_detector_for(recognizer, name)
        detector.require(on_known)
        if isinstance(detector, KNN):
            if neighbours is None:
                index = recognizer.index
                neighbours = (
                    index.class_similarity(on_known.features),
                    index.class_similarity(on_unknown.features),
                )
            by_known, by_unknown = (
                Scores(detector.score_similarities(d), d.argmax(dim=1)) for d in neighbours
            )
        else:
            fit_detector(recognizer, detector, source.of(detector))
            by_known, by_unknown = detector.score(on_known), detector.score(on_unknown)
        # Only the model's own score has a threshold, and so metrics that depend on one.
        metrics[name] = open_set_metrics(by_known, on_known.labels, by_unknown)
    return OpenSetResult(metrics, of_known, of_unknown, on_known.labels, threshold)


class _TrainingOutputs:
    """What the network says about the training images; it is asked at most once, and only if need be."""

    def __init__(self, recognizer: Recognizer, train: Training | None, cache: bool) -> None:
        self._recognizer, self._train, self._cache = recognizer, train, cache
        self._found: Outputs | None = None

    def of(self, detector: Detector) -> Outputs | None:
        """Return the outputs for a detector; None: what the model holds will do, or is all there is."""
        lazy = callable(self._train)
        if self._train is None or (lazy and not _wants_images(self._recognizer, detector)):
            return None
        if self._found is None:
            try:
                images = self._train() if callable(self._train) else self._train
            except UserError:
                if detector.needs <= {"features"}:
                    return None
                raise
            what = "features of the training images"
            self._found = self._recognizer.outputs(images, what, self._cache, penultimate=True)
        return self._found


def accepted(scores: Scores, threshold: float) -> Tensor:
    """Return labels (N,) with -1 where the score is below the threshold."""
    return torch.where(scores.score >= threshold, scores.label, -1)
