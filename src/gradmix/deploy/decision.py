"""Which score decides whether an image is known: the model's own, or another with a threshold of its own.

A model is trained, calibrated and used with the nearest neighbours' score. Elsewhere another may be wanted:
the printed normalisation, or one that needs no index. Its threshold is set as the model's own was, at the
same rate, from the features of the held-out images that the model file holds; no images are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ..detection import DETECTORS, KNN, NORMALIZATIONS, Detector, Outputs, Scores, Threshold, calibrate
from ..detection import make_detector as new_detector
from ..errors import UserError, choose
from ..recognition import Recognizer
from ..recognition.head_start import scores_with_head_start

SCORES = (*DETECTORS, *(f"knn:{name}" for name in NORMALIZATIONS))


@dataclass(frozen=True, eq=False)
class Decision:
    """A fitted detector, the head start of enrolled classes (empty: none), and the threshold."""

    detector: Detector
    head_start: tuple[float, ...]
    threshold: Threshold

    def scores(self, outputs: Outputs) -> Scores:
        if isinstance(self.detector, KNN):
            return scores_with_head_start(self.detector, outputs.features, self.head_start)
        return self.detector.score(outputs)

    def thresholds(self, classes: int) -> torch.Tensor:
        """(C,) float64: from which score on an image taken for each class is accepted."""
        return self.threshold.of(torch.arange(classes))


def decision(recognizer: Recognizer, score: str = "") -> Decision:
    """The model's own decision, or by ``score``: a detector's name, or ``knn:`` and a normalisation."""
    if not score or score == "knn":
        return Decision(recognizer.knn, recognizer.head_start, recognizer.threshold)
    choose("score", score, SCORES)
    if score.startswith("knn:"):
        if score.removeprefix("knn:") == recognizer.knn.normalize:
            return decision(recognizer)
        other = replace(recognizer, knn=recognizer.knn.with_normalize(score.removeprefix("knn:")))
        other = other.recalibrated()
        return Decision(other.knn, other.head_start, other.threshold)
    held_out = recognizer.calibration
    if held_out is None:
        raise UserError(
            f"score {score} needs a threshold of its own, and the model holds no held-out images to set it "
            "with; give it some: gradmix calibrate RUN --images FOLDER"
        )
    detector = new_detector(score)
    outputs = _with_logits(recognizer, held_out, score) if detector.needs_logits else held_out
    detector.fit(_training_features(recognizer, score), len(recognizer.class_names))
    known = detector.score(outputs)
    now = recognizer.threshold
    labels = known.label if now.per_class else None
    classes = len(recognizer.class_names)
    threshold = calibrate(known.score, now.false_reject, labels=labels, num_classes=classes)
    return Decision(detector, (), threshold)


def _training_features(recognizer: Recognizer, score: str) -> Outputs:
    """What the index holds of the training images; distances need more than it may hold."""
    if score == "nno" and not recognizer.network.unit_features:
        raise UserError(
            f"score nno measures distances, and the index of a model trained by {recognizer.recipe.method} "
            "holds directions only; use knn or mls"
        )
    index = recognizer.knn.state()
    return Outputs(index["features"], index["labels"])


@torch.no_grad()
def _with_logits(recognizer: Recognizer, held_out: Outputs, score: str) -> Outputs:
    """The classifier sits on the embedding, so the features that were kept are enough."""
    head = recognizer.network.classifier
    if head is None:
        raise UserError(f"score {score} needs a classifier, which this model has not; use knn or nno")
    changed = recognizer.enrolled_names or head.out_features != len(recognizer.class_names)
    if changed or recognizer.network.unit_features:
        raise UserError(f"score {score} knows only the classes the network was trained on; use knn")
    return replace(held_out, logits=head(held_out.features.to(head.weight.device)).cpu())
