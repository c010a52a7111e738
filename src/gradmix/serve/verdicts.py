"""What a recognizer makes of a batch of images, ready to be cut into the answers of several requests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data import UNKNOWN, ImageSet
from ..recognition import Predictions, Recognizer
from ..recognition.head_start import lifted, scores_of

TOP = 3  # classes told of each image


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Predictions of N images, the ``threshold`` (N,) of each, and its T nearest classes (N, T).

    ``top_similarity`` is the mean cosine to the k nearest images of a class, d_c / k; head starts of
    enrolled classes decide the order but are not in it. ``model`` is the number of the model's state.
    """

    found: Predictions
    threshold: Tensor
    top_label: Tensor
    top_similarity: Tensor
    model: int = 0

    def part(self, first: int, stop: int) -> Verdicts:
        """Those of the images first … stop − 1."""
        label, nearest = self.found.label[first:stop], self.found.nearest[first:stop]
        found = Predictions(label, nearest, self.found.score[first:stop], self.found.class_names)
        top = self.top_label[first:stop], self.top_similarity[first:stop]
        return Verdicts(found, self.threshold[first:stop], *top, self.model)

    def known(self) -> int:
        """How many of them were named."""
        return int((self.found.label >= 0).sum())

    def rows(self) -> list[dict[str, Any]]:
        """As JSON can hold it, one dict an image."""
        names = self.found.class_names
        columns = zip(
            self.found.names(),
            self.found.nearest.tolist(),
            self.found.score.tolist(),
            self.threshold.tolist(),
            self.top_label.tolist(),
            self.top_similarity.tolist(),
            strict=True,
        )
        return [
            {
                "label": label,
                "known": score >= threshold,
                "nearest": names[nearest],
                "score": round(score, 6),
                "threshold": round(threshold, 6) if math.isfinite(threshold) else None,
                "classes": [
                    {"name": names[c], "similarity": round(cosine, 4)}
                    for c, cosine in zip(classes, similarities, strict=True)
                    if math.isfinite(cosine)
                ],
            }
            for label, nearest, score, threshold, classes, similarities in columns
        ]


def judge(recognizer: Recognizer, images: Tensor, model: int = 0) -> Verdicts:
    """Verdicts on images (N, C, S, S) uint8: the labels and scores of ``Recognizer.predict``.

    The similarities to all classes are computed once, for the score and for the nearest classes.
    """
    unlabelled = ImageSet(images, torch.full((len(images),), UNKNOWN), ())
    features = recognizer.outputs(unlabelled).features
    d = recognizer.knn.class_similarity(features)
    scores = scores_of(recognizer.knn, d, recognizer.head_start)
    accepted = recognizer.threshold.accepts(scores.score, scores.label)
    label = scores.label.where(accepted, UNKNOWN)
    found = Predictions(label, scores.label, scores.score, recognizer.class_names)
    top = lifted(d, recognizer.head_start).topk(min(TOP, d.shape[1]), dim=1).indices
    similarity = d.gather(1, top) / recognizer.knn.k
    return Verdicts(found, recognizer.threshold.of(scores.label), top, similarity, model)
