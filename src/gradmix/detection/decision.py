"""From what the network says to an answer: score → class bias → threshold → label, in this one place.

Everybody who names images or rejects them goes through :class:`Decision`: predict, serve, explain, discover,
export, the estimator, evaluate and the experiments. The threshold, and the p-value
that goes with every answer, are in :mod:`.threshold`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..data import UNKNOWN
from ..errors import UserError, choose
from .detector import Detector
from .ensemble import Ensemble
from .false_discoveries import control_false_discoveries
from .knn import KNN
from .outputs import Outputs, Scores, clamp_to_finite
from .registry import DETECTORS
from .threshold import KnownScores, Threshold, check_rate

UNKNOWN_NAME = "unknown"  # the answer for what is of no known class
_QUERIES_AT_ONCE = 4096  # bounds the (N, C) similarities


@dataclass(frozen=True)
class Predictions:
    """``label`` (N,) known class or -1, ``nearest`` (N,) the known class it looks most like, its ``score``,
    and the ``threshold`` (N,) from which on it would have been accepted.

    ``p_value`` (N,) in (0, 1] says how unusual that score is for a known image: the share of the known images
    kept for comparison that look no more familiar. Unknown is what is at most ``false_reject``.
    """

    label: Tensor
    nearest: Tensor
    score: Tensor
    threshold: Tensor
    p_value: Tensor
    class_names: tuple[str, ...] = ()
    false_reject: float = math.nan

    @property
    def accepted(self) -> Tensor:
        """Which images were named, (N,) bool."""
        return self.label != UNKNOWN

    def names(self) -> list[str]:
        """Return class names, "unknown" where rejected."""
        return [self.class_names[i] if i >= 0 else UNKNOWN_NAME for i in self.label.tolist()]

    def part(self, first: int, stop: int) -> Predictions:
        """Return those of the images first … stop − 1."""
        rows = slice(first, stop)
        parts = (self.label[rows], self.nearest[rows], self.score[rows], self.threshold[rows])
        return Predictions(*parts, self.p_value[rows], self.class_names, self.false_reject)

    def control_false_discoveries(self, rate: float) -> Predictions:
        """Return the answers with as many unknown ones as allow that at most ``rate`` of them are known.

        On average; see :mod:`.false_discoveries`. Unlike all else, this depends on which images are asked
        about together.
        """
        unknown = control_false_discoveries(self.p_value, rate)
        return replace(self, label=self.nearest.where(~unknown, UNKNOWN))


@dataclass(frozen=True, eq=False)
class Decision:
    """A fitted detector, the threshold of its score, and a bias per class (empty: none).

    The bias is added to the similarity to each class; enrolled classes of few images have one. ``known``: the
    scores that the threshold was set with, or a function that finds them when they are needed; None where
    nobody can: then p-values are NaN.
    """

    detector: Detector
    threshold: Threshold
    class_bias: tuple[float, ...] = ()
    known: KnownScores | Callable[[], KnownScores | None] | None = None

    def __post_init__(self) -> None:
        if self.class_bias and not isinstance(self.detector, KNN):
            raise UserError(f"a bias per class goes with neighbours, not with '{self.detector.name}'")

    def decide(self, outputs: Outputs, class_names: Sequence[str] = ()) -> Predictions:
        """Name each image, or call it unknown; each by itself, whatever else is among them."""
        return self.decide_scores(self.scores(outputs), class_names)

    def decide_scores(self, scores: Scores, class_names: Sequence[str] = ()) -> Predictions:
        """Decide on scores that are there already."""
        threshold = self.threshold.of(scores.label)
        label = scores.label.where(scores.score >= threshold, UNKNOWN)
        parts = (label, scores.label, scores.score, threshold, self.p_values(scores))
        return Predictions(*parts, tuple(class_names), self.threshold.false_reject)

    @functools.cached_property
    def known_scores(self) -> KnownScores | None:
        """The scores that p-values compare with."""
        return self.known() if callable(self.known) else self.known

    def p_values(self, scores: Scores) -> Tensor:
        """Return (N,) float64: how unusual each score is for a known image."""
        if self.known_scores is None:
            return torch.full((len(scores.score),), math.nan, dtype=torch.float64)
        return self.known_scores.p_values(scores, self.threshold)

    def at_rate(self, false_reject: float, per_class: bool | None = None) -> Decision:
        """Return the decision that may reject another share of the known images, from the same scores."""
        check_rate(false_reject)
        if self.known_scores is None:
            raise UserError(
                "this model, of an earlier version, keeps no scores of known images, so its rate cannot be "
                "changed; set it with images: gradmix calibrate RUN --images FOLDER"
            )
        per_class = self.threshold.per_class if per_class is None else per_class
        return replace(self, threshold=self.known_scores.threshold(false_reject, per_class))

    def scores(self, outputs: Outputs) -> Scores:
        """Score and class of each image: the detector's own, with the bias of each class."""
        if not self.class_bias:
            return self.detector.score(outputs)
        parts = [
            self.scores_of_classes(self.detector.class_scores(outputs.select(rows)))
            for rows in torch.split(torch.arange(len(outputs.features)), _QUERIES_AT_ONCE)
        ]
        return Scores(torch.cat([p.score for p in parts]), torch.cat([p.label for p in parts]))

    def scores_of_classes(self, values: Tensor) -> Scores:
        """Score and class of class similarities (N, C) of neighbours, before the bias."""
        assert isinstance(self.detector, KNN)
        biased = add_bias(values, self.class_bias)
        return Scores(self.detector.score_similarities(biased), biased.argmax(dim=1))

    def class_scores(self, outputs: Outputs) -> Tensor:
        """Return (N, C) float64: what is compared between classes, bias included; the largest wins."""
        return add_bias(self.detector.class_scores(outputs), self.class_bias)

    def margins(self, outputs: Outputs) -> tuple[Scores, float]:
        """Return the scores, and the one number that they are compared with.

        Where thresholds differ between classes, the scores are score − threshold, and that number is 0.
        """
        scores = self.scores(outputs)
        if not self.threshold.by_class:
            return scores, self.threshold.value
        margin = scores.score - self.threshold.of(scores.label)
        return Scores(clamp_to_finite(margin), scores.label), 0.0


def add_bias(values: Tensor, class_bias: Sequence[float]) -> Tensor:
    """Return (N, C) class similarities plus the bias of each class, as float64."""
    return values.double() + torch.tensor(class_bias, dtype=torch.float64) if class_bias else values.double()


def load_detector(
    name: str, settings: Mapping[str, Any], state: Mapping[str, Tensor], index: KNN | None = None
) -> Detector:
    """Return the detector of that name that ``state()`` and ``settings()`` describe.

    ``index``: the neighbours that a sum of scores shares with the model.
    """
    if "+" in name:
        return Ensemble.from_state(state, settings, index)
    return DETECTORS[choose("detector", name, DETECTORS)].from_state(state, settings)
