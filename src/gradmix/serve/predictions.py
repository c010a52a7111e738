"""Predict a batch of images, so that the result can be split into the responses of several requests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data import UNKNOWN, ImageSet
from ..detection import KNN, Predictions, add_bias
from ..recognition import Recognizer

TOP_CLASSES = 3  # listed per image


@dataclass(frozen=True, eq=False)
class BatchPredictions:
    """Predictions for N images, and the T best classes per image (N, T), best first.

    ``top_similarity`` is the mean cosine to the k nearest images of a class, d_c / k, whichever detector
    decides; the bias of enrolled classes affects the order but is not included. ``model`` is the number of
    the model's state.
    """

    found: Predictions
    top_label: Tensor
    top_similarity: Tensor
    model: int = 0

    def part(self, first: int, stop: int) -> BatchPredictions:
        """Return those of the images first … stop − 1."""
        top = self.top_label[first:stop], self.top_similarity[first:stop]
        return BatchPredictions(self.found.part(first, stop), *top, self.model)

    def count_known(self) -> int:
        """Return how many images were accepted as known."""
        return int(self.found.accepted.sum())

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per image, ready for JSON."""
        names = self.found.class_names
        columns = zip(
            self.found.names(),
            self.found.nearest.tolist(),
            self.found.score.tolist(),
            self.found.threshold.tolist(),
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


def predict_batch(recognizer: Recognizer, images: Tensor, model: int = 0) -> BatchPredictions:
    """Return labels and scores of images (N, C, S, S) uint8, equal to those of ``Recognizer.predict``."""
    unlabelled = ImageSet(images, torch.full((len(images),), UNKNOWN), ())
    outputs, decision = recognizer.outputs(unlabelled), recognizer.decision
    similarity = recognizer.index.class_similarity(outputs.features)
    if isinstance(decision.detector, KNN):  # one search serves the score and the nearest classes
        values = add_bias(similarity, decision.class_bias)
        scores = decision.scores_of_classes(similarity)
    else:
        values, scores = decision.class_scores(outputs), decision.scores(outputs)
    found = decision.decide_scores(scores, recognizer.class_names)
    top = values.topk(min(TOP_CLASSES, values.shape[1]), dim=1).indices
    return BatchPredictions(found, top, similarity.gather(1, top) / recognizer.index.k, model)
