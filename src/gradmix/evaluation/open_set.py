"""A recognizer against known and unknown test images, by every detector that applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..data import ImageSet
from ..detection import KNN, SCORE_NORMALIZATIONS, Detector, Outputs, Scores, detector_names, make_detector
from ..errors import UserError, choose
from ..recognition import Recognizer
from .full_spectrum import add_corrupted
from .metrics import open_set_metrics

_NO_IMAGES = Outputs(torch.empty(0, 1), torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True)
class OpenSetResult:
    """``metrics`` by detector (shares of 1); the rest belongs to the model's own detector, the first one.

    Of several unknown sets: ``sets`` has the metrics of each, by its name and by detector, ``metrics`` their
    means, in which every set counts the same, and ``unknown`` the scores of all sets, one after the other.
    """

    metrics: dict[str, dict[str, float]]
    known: Scores
    unknown: Scores
    known_labels: Tensor
    threshold: float
    sets: Mapping[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    @property
    def main(self) -> dict[str, float]:
        """The metrics of the model's own detector."""
        return next(iter(self.metrics.values()))

    def compare_sets(self, metric: str) -> dict[str, list[float]]:
        """Return a metric by detector: that of each unknown set, and their mean last."""
        return {
            name: [*(found[name][metric] for found in self.sets.values()), means[metric]]
            for name, means in self.metrics.items()
            if metric in means
        }


def applicable_detectors(recognizer: Recognizer) -> list[str]:
    """Return the names of all scores that this model can compute, its own first.

    Neighbours come once by each normalization; those of the model's own settings are called ``knn``.
    """
    own = recognizer.decision.detector.name
    others = [f"{KNN.name}:{how}" for how in SCORE_NORMALIZATIONS if how != recognizer.index.normalize]
    others += [name for name in detector_names() if ":" not in name and name != own]
    return [own, *(name for name in others if _can_compute(recognizer, name))]


def learning_detectors(recognizer: Recognizer) -> list[str]:
    """Return the names of the scores that this network could have, were there training images."""
    made = {name: make_detector(name) for name in detector_names() if ":" not in name}
    return [name for name, d in made.items() if d.learns and d.needs <= recognizer.parts]


def has_index(recognizer: Recognizer) -> bool:
    """Return whether the model holds features of training images; a network of somebody else's may not."""
    try:
        recognizer.index.class_similarity(torch.empty(0, recognizer.network.feature_dim))
    except UserError:
        return False
    return True


def _can_compute(recognizer: Recognizer, name: str) -> bool:
    try:
        detector = make_detector(name)
        if not detector.learns:
            return detector.needs <= recognizer.parts
        if isinstance(detector, KNN):
            return has_index(recognizer)
        recognizer.training_outputs(detector)
    except UserError:
        return False
    return True


def evaluate_open_set(
    recognizer: Recognizer,
    known: ImageSet,
    unknown: ImageSet | Mapping[str, ImageSet],
    train: ImageSet | Outputs | None = None,
    detectors: Sequence[str] = (),
    cache: bool = True,
    severity: int | None = None,
) -> OpenSetResult:
    """Score labelled ``known`` and foreign ``unknown`` images by the model's own detector and by others.

    The network runs once over each set, whatever the number of detectors, and with ``cache`` not at all over
    images that it has seen before. ``knn:none`` is the model's own index with another normalization. The
    other detectors learn from the training features that the model holds, or from ``train`` if it is given.
    Several ``unknown`` sets by name are scored one by one; see :class:`OpenSetResult`. With ``severity`` the
    known images under the fifteen corruptions count as known too (:mod:`.full_spectrum`).
    """
    own = recognizer.decision.detector.name
    names = [own, *(choose("detector", name, detector_names()) for name in detectors if name != own)]
    on_known = recognizer.outputs(known, "features of the known test images", cache)
    for name in names[1:]:
        make_detector(name).require(on_known)  # now, not after the unknown images
    if severity is not None:
        on_known = add_corrupted(recognizer, known, on_known, severity)
    sets = unknown if isinstance(unknown, Mapping) else {"": unknown}
    if not sets:
        raise UserError("give at least one set of unknown images")
    on_unknown = {
        name: recognizer.outputs(images, f"features of the unknown test images {name}".rstrip(), cache)
        for name, images in sets.items()
    }
    if isinstance(train, ImageSet):
        train = recognizer.outputs(train, "features of the training images", cache)
    scorers: dict[str, Detector] = {name: _fit_detector(recognizer, name, train) for name in names[1:]}

    of_known, threshold = recognizer.decision.margins(on_known)
    of_sets = {name: recognizer.decision.margins(found)[0] for name, found in on_unknown.items()}
    # A network that came without training images has no threshold, and no metrics that depend on one.
    at = threshold if has_threshold(recognizer) else None
    by_set: dict[str, dict[str, dict[str, float]]] = {
        name: {own: open_set_metrics(of_known, on_known.labels, scores, at)}
        for name, scores in of_sets.items()
    }
    for name, detector in scorers.items():
        # Only the model's own score has a threshold, and so metrics that depend on one.
        known_scores = detector.score(on_known)
        for in_set, found in on_unknown.items():
            by_set[in_set][name] = open_set_metrics(known_scores, on_known.labels, detector.score(found))
    together = Scores(
        torch.cat([scores.score for scores in of_sets.values()]),
        torch.cat([scores.label for scores in of_sets.values()]),
    )
    metrics = _average(list(by_set.values()))
    kept = by_set if isinstance(unknown, Mapping) else {}
    return OpenSetResult(metrics, of_known, together, on_known.labels, threshold, kept)


def has_threshold(recognizer: Recognizer) -> bool:
    """Return whether the model's threshold was set with any image."""
    return recognizer.threshold.n > 0


def _fit_detector(recognizer: Recognizer, name: str, train: Outputs | None) -> Detector:
    detector: Detector = make_detector(name)
    if isinstance(detector, KNN):
        how = {"normalize": detector.normalize} if ":" in name else {}
        return recognizer.index.with_settings(**how)
    if not detector.learns:
        return detector.fit(_NO_IMAGES, len(recognizer.class_names))
    source = recognizer.training_outputs(detector) if train is None else train
    return detector.fit(source, len(recognizer.class_names))


def _average(sets: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the mean over sets of every metric of every detector.

    >>> _average([{"mls": {"auroc": 0.5}}, {"mls": {"auroc": 1.0}}])
    {'mls': {'auroc': 0.75}}
    """
    first = sets[0]
    return {
        detector: {metric: sum(one[detector][metric] for one in sets) / len(sets) for metric in values}
        for detector, values in first.items()
    }


def accepted(scores: Scores, threshold: float) -> Tensor:
    """Return labels (N,) with -1 where the score is below the threshold."""
    return torch.where(scores.score >= threshold, scores.label, -1)
