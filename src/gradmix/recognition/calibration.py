"""The decision of a recognizer: by which score, and from which images its threshold is set.

In order of preference:

1. Images held out of training (``holdout`` in the recipe, or given to :func:`calibrate_on`). What the network
   says about them is kept in the model, so that the threshold can be set again, at another rate, for another
   score or against another index, without the images. Against any index they were not used to build, the
   conformal promise holds.
2. Otherwise the training images; for neighbours, each left out of its own. The network has seen them, so they
   score higher than new ones: nothing is promised, and ``Threshold.held_out`` is False.

Of a score that itself learns from held-out images (``temperature``, a sum of scores), every second image of
each class is for that, and the others set the threshold: they took no part, and the promise stands.

A class enrolled later has few images, all of them in the index, and a network not trained for it: it is given
a bias (:mod:`.class_bias`), and its images still score lower than those of trained classes. Images taken for
it are accepted from min(t, t_own) on: t is the threshold of the trained classes, whose promise stands as it
was, and t_own the conformal threshold of the enrolled images, each left out in turn, at rate max(α, 1/(m+1))
for the m of them that are then taken for their own class; a single image leaves t. So the more images of a
class are enrolled, the nearer it comes to the rate asked for; a rule, not a guarantee.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..data import ImageSet
from ..data.open_set import rank_in_class
from ..detection import (
    KNN,
    Decision,
    Detector,
    EnrolledScores,
    Ensemble,
    KnownScores,
    Outputs,
    Scores,
    make_detector_with,
    resolve_name,
)
from ..errors import UserError
from .class_bias import compute_class_bias, known_similarity, left_out_similarity

if TYPE_CHECKING:
    from .recognizer import Recognizer

_SAME_IMAGE = 1 - 1e-6  # the cosine of two runs of the network over one image, rounding included


def set_decision(
    detector: Detector,
    classes: int,
    train: Outputs | None,
    held_out: Outputs | None,
    false_reject: float,
    per_class: bool = False,
    enrolled: Sequence[int] = (),
    biased: bool = True,
) -> Decision:
    """Return the decision by a fitted detector of ``classes``: its class bias and its threshold, as above.

    ``train``: what the network says about the training images; neighbours remember theirs and need none.
    ``enrolled`` are the labels of classes that the network was not trained for; ``biased``: with their bias.
    """
    if isinstance(detector, KNN):
        bias = compute_class_bias(detector, held_out, enrolled) if biased else ()
        return _decide_by_neighbours(detector, classes, held_out, false_reject, per_class, enrolled, bias)
    source = train if held_out is None else split_held_out(detector, held_out)[1]
    assert source is not None
    known = KnownScores.of(detector.score(source), classes, held_out is not None)
    return Decision(detector, known.threshold(false_reject, per_class), known=known)


def split_held_out(
    detector: Detector, held_out: Outputs | None
) -> tuple[Outputs, Outputs] | tuple[None, None]:
    """Return those that the detector may learn from, and those that set its threshold."""
    if held_out is None:
        return None, None
    if not detector.uses_held_out or len(held_out.labels) < 2:
        return held_out, held_out
    to_learn = rank_in_class(held_out.labels) % 2 == 1
    if not bool(to_learn.any()):  # one image of each class
        to_learn = torch.arange(len(to_learn)) % 2 == 1
    return held_out.select(to_learn), held_out.select(~to_learn)


def _decide_by_neighbours(
    knn: KNN,
    classes: int,
    held_out: Outputs | None,
    false_reject: float,
    per_class: bool,
    enrolled: Sequence[int],
    bias: tuple[float, ...],
) -> Decision:
    nothing = KnownScores.none(classes)
    decision = Decision(knn, nothing.threshold(false_reject, per_class), bias, nothing)
    # A copy of all features: not needed, and not made, for the plain case of a large index.
    index = knn.state() if held_out is None or enrolled else {}
    if held_out is not None:
        scores = decision.scores(held_out)
    elif len(index["labels"]) < 2:  # one image cannot be left out of itself
        return decision
    else:
        scores = _left_out_scores(decision, index, classes, enrolled)
    own = {label: _score_enrolled(decision, index, label) for label in enrolled}
    known = KnownScores.of(scores, classes, held_out is not None, own)
    return replace(decision, threshold=known.threshold(false_reject, per_class), known=known)


def _score_enrolled(decision: Decision, index: dict[str, Tensor], label: int) -> EnrolledScores:
    """Score the images of an enrolled class, each left out of its own neighbours; keep those taken for it."""
    count = int((index["labels"] == label).sum())
    if count < 2:
        return EnrolledScores(count, torch.empty(0, dtype=torch.float64))
    assert isinstance(decision.detector, KNN)
    found = decision.scores_of_classes(left_out_similarity(decision.detector, index, label))
    return EnrolledScores(count, found.score[found.label == label].double())


def _left_out_scores(
    decision: Decision, index: dict[str, Tensor], classes: int, enrolled: Sequence[int]
) -> Scores:
    """Score the training images (of trained classes, if any), each left out of its own neighbours."""
    knn = decision.detector
    assert isinstance(knn, KNN)
    if not enrolled or len(enrolled) == classes:
        return knn.leave_one_out()
    trained = [c for c in range(classes) if c not in enrolled]
    return decision.scores_of_classes(known_similarity(knn, index, None, trained)[0])


def recalibrate(
    recognizer: Recognizer, false_reject: float | None = None, per_class: bool | None = None
) -> Recognizer:
    """Return the same model with its threshold set anew; None keeps the rate, or the kind, that it has."""
    return _with_decision_by(recognizer, recognizer.decision.detector, false_reject, per_class)


def choose_detector(recognizer: Recognizer, name: str) -> Recognizer:
    """Return the same model deciding by another score, with a threshold of its own at the same rate.

    The detector learns from the training features that the model holds; no images are needed.
    """
    name = resolve_name(name)
    kind, _, how = name.partition(":")
    if kind == KNN.name and "+" not in name:
        now = recognizer.decision.detector
        knn = recognizer.index.with_settings(**({"normalize": how} if how else {}))
        if isinstance(now, KNN) and now.settings() == knn.settings():
            return recognizer
        return _with_decision_by(recognizer, knn)
    if name == recognizer.decision.detector.name:
        return recognizer
    detector = make_detector_for(recognizer, name)
    if recognizer.calibration is None:
        raise UserError(
            f"detector {name} needs a threshold of its own, and the model holds no held-out images to set it "
            "with; give it some: gradmix calibrate RUN --images FOLDER"
        )
    fit_detector(recognizer, detector)
    return _with_decision_by(recognizer, detector)


def make_detector_for(recognizer: Recognizer, name: str) -> Detector:
    """Make a detector, not fitted yet; neighbours are found as the model's index finds them."""
    index = recognizer.index.settings()
    return make_detector_with(name, lambda part: index if part.partition(":")[0] == KNN.name else {})


def fit_detector(recognizer: Recognizer, detector: Detector, train: Outputs | None = None) -> Detector:
    """Fit to outputs of the training images: those given, or what the model holds of them.

    Neighbours in a sum of scores are those of the model's index.
    """
    source = recognizer.training_outputs(detector) if train is None else train
    if isinstance(detector, Ensemble):
        detector.share_index(recognizer.index)
    held_out = None
    if detector.uses_held_out:
        held_out = split_held_out(detector, recognizer.held_out_outputs(detector))[0]
    return detector.fit(source, len(recognizer.class_names), held_out=held_out)


def _with_decision_by(
    recognizer: Recognizer,
    detector: Detector,
    false_reject: float | None = None,
    per_class: bool | None = None,
) -> Recognizer:
    now = recognizer.threshold
    held_out, train = recognizer.held_out_outputs(detector), None
    if held_out is None and not isinstance(detector, KNN):
        train = recognizer.training_outputs(detector, to_score=True)
    decision = set_decision(
        detector,
        len(recognizer.class_names),
        train,
        held_out,
        now.false_reject if false_reject is None else false_reject,
        now.per_class if per_class is None else per_class,
        recognizer.enrolled_labels,
    )
    return replace(recognizer, decision=decision)


def find_known_scores(recognizer: Recognizer) -> KnownScores | None:
    """Score again what the threshold was set with, for a file that has no scores; None if that cannot be."""
    try:
        found = _with_decision_by(recognizer, recognizer.decision.detector).decision.known_scores
    except UserError:  # it needs more of the training images than the file has
        return None
    return None if found is None else found.snap_to(recognizer.threshold)


def calibrate_on(
    recognizer: Recognizer,
    images: ImageSet,
    false_reject: float | None = None,
    per_class: bool | None = None,
) -> Recognizer:
    """Return the same model, its threshold set with labelled ``images`` of known classes that it never saw.

    They replace the held-out images of before. Some that are in the index already are warned of.
    """
    foreign = [name for name in images.class_names if name not in recognizer.class_names]
    if foreign:
        raise UserError(
            f"class '{foreign[0]}' of the calibration images is not known to the model "
            f"(it knows: {', '.join(recognizer.class_names)})"
        )
    if bool((images.labels < 0).any()) or not len(images):
        raise UserError(
            "calibration needs images of known classes, each with its class; sort them in folders"
        )
    outputs = recognizer.outputs(images, "features of the calibration images", penultimate=True)
    label_of = torch.tensor([recognizer.class_names.index(name) for name in images.class_names])
    seen = recognizer.index.neighbours(outputs.features, 1).similarity[:, 0] >= _SAME_IMAGE
    if bool(seen.any()):
        warnings.warn(
            f"{int(seen.sum())} of the {len(images)} calibration images seem to be among the images that the "
            "model was made of; the promise holds only for images that it never saw",
            stacklevel=2,
        )
    held_out = replace(outputs, labels=label_of[outputs.labels])
    return recalibrate(replace(recognizer, calibration=held_out), false_reject, per_class)
