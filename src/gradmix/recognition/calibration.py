"""The threshold of a recognizer: from which images it is set, and how it is set anew.

In order of preference:

1. Images held out of training (``holdout`` in the recipe, or given to :func:`calibrated_on`). Their features
   are kept in the model, so that the threshold can be set again, at another rate or against another index,
   without the images. Against any index they were not used to build, the conformal promise holds.
2. Otherwise the training images, each left out of its own neighbours. The network has seen them, so they
   score higher than new ones: nothing is promised, and ``Threshold.held_out`` is False.

A class enrolled later has few images, all of them in the index, and a network not trained for it: it is given
a head start (:mod:`.head_start`), and its images still score lower than those of trained classes. Images
taken for it are accepted from min(t, t_own) on: t is the threshold of the trained classes, whose promise
stands as it was, and t_own the conformal threshold of the enrolled images, each left out in turn, at rate
max(α, 1/(m+1)) for the m of them that are then taken for their own class; a single image leaves t. So the
more images of a class are enrolled, the nearer it comes to the rate asked for; a rule, not a guarantee.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..data import ImageSet
from ..detection import KNN, ClassThreshold, Outputs, Threshold, calibrate
from ..errors import UserError
from .head_start import head_starts, known_similarity, left_out_similarity, scores_of, scores_with_head_start

if TYPE_CHECKING:
    from .recognizer import Recognizer

_SAME_IMAGE = 1 - 1e-6  # the cosine of two runs of the network over one image, rounding included


def known_threshold(
    knn: KNN,
    classes: int,
    held_out: Outputs | None,
    false_reject: float,
    per_class: bool = False,
    enrolled: Sequence[int] = (),
    head_start: Sequence[float] = (),
) -> Threshold:
    """The threshold of an index of ``classes``: from held-out features, else from its own images, as above.

    ``enrolled`` are the labels of classes that the network was not trained for.
    """
    # A copy of all features: not needed, and not made, for the plain case of a large index.
    index = knn.state() if held_out is None or enrolled else {}
    if held_out is not None:
        known = scores_with_head_start(knn, held_out.features, head_start)
    elif len(index["labels"]) < 2:  # one image cannot be left out of itself
        return Threshold(-math.inf, false_reject, 0, guaranteed=False, held_out=False, per_class=per_class)
    elif not enrolled or len(enrolled) == classes:
        known = knn.leave_one_out()
    else:
        trained = [c for c in range(classes) if c not in enrolled]
        known = scores_of(knn, known_similarity(knn, index, None, trained)[0], head_start)
    labels = known.label if per_class else None
    base = calibrate(
        known.score, false_reject, labels=labels, num_classes=classes, held_out=held_out is not None
    )
    if not enrolled:
        return base
    by_class = list(base.by_class or [ClassThreshold(base.value, base.n, base.guaranteed)] * classes)
    for label in enrolled:
        many = int((index["labels"] == label).sum())
        value = by_class[label].value
        if many > 1:
            found = scores_of(knn, left_out_similarity(knn, index, label), head_start)
            value = _own_threshold(found.score[found.label == label], false_reject, value)
        by_class[label] = ClassThreshold(value, many, guaranteed=False)
    return replace(base, by_class=tuple(by_class))


def recalibrated(
    recognizer: Recognizer, false_reject: float | None = None, per_class: bool | None = None
) -> Recognizer:
    """The same model with its threshold set anew; None keeps the rate, or the kind, that it has."""
    now = recognizer.threshold
    enrolled = recognizer.enrolled_labels
    head_start = head_starts(recognizer.knn, recognizer.calibration, enrolled)
    threshold = known_threshold(
        recognizer.knn,
        len(recognizer.class_names),
        recognizer.calibration,
        now.false_reject if false_reject is None else false_reject,
        now.per_class if per_class is None else per_class,
        enrolled,
        head_start,
    )
    return replace(recognizer, threshold=threshold, head_start=head_start)


def rejects_nothing(t: Threshold) -> str:
    """One line where there are too few images for a threshold, so that all is accepted; else ""."""
    if t.guaranteed:
        return ""
    return (
        f"{t.n} images cannot bound false rejects by {t.false_reject:g} ({t.needed} would do): nothing is "
        "rejected; allow more (false_reject), or set the threshold with more images"
    )


def calibrated_on(
    recognizer: Recognizer,
    images: ImageSet,
    false_reject: float | None = None,
    per_class: bool | None = None,
) -> Recognizer:
    """The same model, its threshold set with labelled ``images`` of known classes that it never saw.

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
    outputs = recognizer.outputs(images, "features of the calibration images")
    place = torch.tensor([recognizer.class_names.index(name) for name in images.class_names])
    seen = recognizer.knn.neighbours(outputs.features, 1).similarity[:, 0] >= _SAME_IMAGE
    if bool(seen.any()):
        warnings.warn(
            f"{int(seen.sum())} of the {len(images)} calibration images seem to be among the images that the "
            "model was made of; the promise holds only for images that it never saw",
            stacklevel=2,
        )
    held_out = Outputs(outputs.features, place[outputs.labels])
    return recalibrated(replace(recognizer, calibration=held_out), false_reject, per_class)


def _own_threshold(own: Tensor, false_reject: float, of_all: float) -> float:
    """min(t, t_own) of an enrolled class, from its images that are taken for it; see the top of this file."""
    if not len(own):
        return of_all
    return min(of_all, calibrate(own, max(false_reject, 1 / (len(own) + 1))).value)
