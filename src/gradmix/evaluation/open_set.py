"""A recognizer against known and unknown test images, by every detector that applies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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
from .full_spectrum import add_corrupted
from .metrics import open_set_metrics
from .result_text import format_result

# The images, what the network says about them, or a function that loads them.
Training = ImageSet | Outputs | Callable[[], ImageSet]
_NO_IMAGES = Outputs(torch.empty(0, 1), torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True)
class OpenSetResult:
    """``metrics`` by detector (shares of 1); the rest belongs to the model's own detector, the first one.

    Of several unknown sets: ``sets`` has the metrics of each, by its name and by detector, ``metrics`` their
    means, in which every set counts the same, and ``unknown`` the scores of all sets, one after the other.
    ``groups`` are names of sets that are summarized together, as near and far ones.
    """

    metrics: dict[str, dict[str, float]]
    known: Scores
    unknown: Scores
    known_labels: Tensor
    threshold: float
    sets: Mapping[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the numbers as a table: what happens at the threshold first, then one row per detector."""
        return format_result(self)

    @property
    def main(self) -> dict[str, float]:
        """The metrics of the model's own detector."""
        return next(iter(self.metrics.values()))

    @property
    def columns(self) -> list[str]:
        """The headings of :meth:`compare_sets`."""
        return [*self.sets, *self.groups, "mean"]

    def compare_sets(self, metric: str) -> dict[str, list[float]]:
        """Return a metric by detector: that of each unknown set, the mean of each group, and of all sets."""
        means = [*self.sets.values(), *self.summarize_groups().values(), self.metrics]
        return {
            name: [found[name][metric] for found in means]
            for name, values in self.metrics.items()
            if metric in values
        }

    def summarize_groups(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return the means over the sets of each group: metrics by group and by detector."""
        return {group: _average([self.sets[name] for name in names]) for group, names in self.groups.items()}


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


def _can_compute(recognizer: Recognizer, name: str, at_hand: Callable[[], bool]) -> bool:
    detector = make_detector(name)
    if not detector.needs <= recognizer.parts:
        return False
    if detector.needs_held_out and not _has_held_out(recognizer, detector):
        return False
    if not detector.learns:
        return True
    if isinstance(detector, KNN):
        return has_index(recognizer)
    if not detector.needs <= {"features"} and _wants_images(recognizer, detector):
        return at_hand()
    try:
        recognizer.training_outputs(detector)
    except UserError:
        return False
    return True


def _has_held_out(recognizer: Recognizer, detector: Detector) -> bool:
    """Return whether the model holds all that the detector needs of held-out images."""
    try:
        return recognizer.held_out_outputs(detector) is not None
    except UserError:
        return False


def _wants_images(recognizer: Recognizer, detector: Detector) -> bool:
    """Return whether the detector learns from penultimate activations, and the model holds none."""
    wanted = "penultimate" in detector.needs | detector.prefers
    return detector.learns and wanted and not recognizer.holds_penultimate


def evaluate_open_set(
    recognizer: Recognizer,
    known: ImageSet,
    unknown: ImageSet | Mapping[str, ImageSet],
    train: Training | None = None,
    detectors: Sequence[str] = (),
    cache: bool = True,
    severity: int | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> OpenSetResult:
    """Score labelled ``known`` and foreign ``unknown`` images by the model's own detector and by others.

    The network runs once over each set, whatever the number of detectors, and with ``cache`` not at all over
    images that it has seen before. ``knn:none`` is the model's own index with another normalization. The
    other detectors learn from the training features that the model holds, or from ``train`` if it is given;
    a function that loads the training images is called only for detectors that the features do not suffice.
    Several ``unknown`` sets by name are scored one by one, and summarized in ``groups`` of such names; see
    :class:`OpenSetResult`. With ``severity`` the
    known images under the fifteen corruptions count as known too (:mod:`.full_spectrum`).
    """
    own = recognizer.decision.detector.name
    others = [name for name in dict.fromkeys(map(resolve_name, detectors)) if name != own]
    scorers = {name: make_detector_for(recognizer, name) for name in others}
    on_known = recognizer.outputs(known, "features of the known test images", cache, True)
    for detector in scorers.values():
        detector.require(on_known)  # now, not after the unknown images
    if severity is not None:
        on_known = add_corrupted(recognizer, known, on_known, severity)
    sets = unknown if isinstance(unknown, Mapping) else {"": unknown}
    if not sets:
        raise UserError("give at least one set of unknown images")
    on_unknown = {
        name: recognizer.outputs(images, f"features of the unknown test images {name}".rstrip(), cache, True)
        for name, images in sets.items()
    }

    of_known, threshold = recognizer.decision.margins(on_known)
    of_sets = {name: recognizer.decision.margins(found)[0] for name, found in on_unknown.items()}
    # A network that came without training images has no threshold, and no metrics that depend on one.
    at = threshold if has_threshold(recognizer) else None
    by_set: dict[str, dict[str, dict[str, float]]] = {
        name: {own: open_set_metrics(of_known, on_known.labels, of_set, at)}
        for name, of_set in of_sets.items()
    }
    source = _TrainingOutputs(recognizer, train, cache)
    tested = [on_known, *on_unknown.values()]

    @functools.cache
    def search(number: int) -> Tensor:
        """Find the neighbours of a tested set once, for all their normalizations."""
        return recognizer.index.class_similarity(tested[number].features)

    for name, detector in scorers.items():
        if isinstance(detector, KNN):
            scores = [_score_neighbours(detector, search(number)) for number in range(len(tested))]
        else:
            _fit(recognizer, detector, source)
            scores = [detector.score(found) for found in tested]
        # Only the model's own score has a threshold, and so metrics that depend on one.
        for in_set, of_unknown in zip(on_unknown, scores[1:], strict=True):
            by_set[in_set][name] = open_set_metrics(scores[0], on_known.labels, of_unknown)
    together = Scores(
        torch.cat([of_set.score for of_set in of_sets.values()]),
        torch.cat([of_set.label for of_set in of_sets.values()]),
    )
    metrics = _average(list(by_set.values()))
    kept = by_set if isinstance(unknown, Mapping) else {}
    return OpenSetResult(metrics, of_known, together, on_known.labels, threshold, kept, groups or {})


def has_threshold(recognizer: Recognizer) -> bool:
    """Return whether the model's threshold was set with any image."""
    return recognizer.threshold.n > 0


def _fit(recognizer: Recognizer, detector: Detector, source: _TrainingOutputs) -> Detector:
    if not (detector.learns or detector.uses_held_out):  # and there may be no training images
        return detector.fit(_NO_IMAGES, len(recognizer.class_names))
    return fit_detector(recognizer, detector, source.of(detector))


def _score_neighbours(detector: KNN, similarity: Tensor) -> Scores:
    return Scores(detector.score_similarities(similarity), similarity.argmax(dim=1))


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


class _TrainingOutputs:
    """What the network says about the training images; it is asked at most once, and only if need be."""

    def __init__(self, recognizer: Recognizer, train: Training | None, cache: bool) -> None:
        self._recognizer, self._train, self._cache = recognizer, train, cache
        self._found = train if isinstance(train, Outputs) else None

    def of(self, detector: Detector) -> Outputs | None:
        """Return the outputs for a detector; None: what the model holds will do, or is all there is."""
        lazy = callable(self._train)
        if self._train is None or (lazy and not _wants_images(self._recognizer, detector)):
            return None
        if self._found is None:
            assert not isinstance(self._train, Outputs)
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
