"""Distance to the k-th nearest training image (Sun et al. 2022, "Out-of-Distribution Detection with Deep
Nearest Neighbors")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from .bank import DEFAULT_CHUNK_BYTES
from .detector import Detector
from .knn import KNN, Neighbours
from .learned import ROWS_AT_ONCE, chunks, require_count
from .outputs import Outputs, Scores
from .representation import Representation


class KNNDistance(Detector):
    """Minus the distance to the k-th nearest of all training images, on the unit sphere.

    score = −‖u − u₍ₖ₎‖ = −√(2 − 2 cos), u = h/‖h‖ (z where there is no h); ``k`` (50), or all images if there
    are fewer. The label is voted by these k: each counts (1 + cos)/2 for its class. Memory as that of
    :class:`KNN`, whose search this is.
    """

    name = "knn_distance"
    prefers = frozenset({"penultimate"})

    def __init__(self, k: int = 50, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        self.k, self.chunk_bytes = require_count(self.name, "k", k), chunk_bytes
        self._index = KNN(k=1, chunk_bytes=chunk_bytes)
        self._of = Representation()

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        self._of = Representation.choose(train)
        self._index.learn(Outputs(self._of.read(train), train.labels), num_classes)
        self._num_classes = num_classes

    def score_outputs(self, test: Outputs) -> Scores:
        """Return minus the distance to the k-th nearest, and the class that the k nearest vote for."""
        u = self._of.read(test)
        score = torch.empty(len(u), dtype=torch.float64, device=u.device)
        label = torch.empty(len(u), dtype=torch.int64, device=u.device)
        for part in chunks(len(u), ROWS_AT_ONCE):
            near = self._index.neighbours(u[part], self.k)
            score[part] = -(2 - 2 * near.similarity[:, -1].double()).clamp_min(0).sqrt()
            label[part] = self._votes(near).argmax(dim=1)
        return Scores(score, label)

    def class_scores(self, test: Outputs) -> Tensor:
        u = self._of.read(test)
        votes = [self._votes(self._index.neighbours(u[part], self.k)) for part in chunks(len(u))]
        return torch.cat([u.new_empty((0, self._num_classes), dtype=torch.float64), *votes])

    def _votes(self, near: Neighbours) -> Tensor:
        """Return (n, C): the sum of (1 + cos)/2 over the nearest images of each class."""
        votes = torch.zeros(
            (len(near.label), self._num_classes), dtype=torch.float64, device=near.label.device
        )
        return votes.scatter_add_(1, near.label, (1 + near.similarity.double()) / 2)

    def settings(self) -> dict[str, Any]:
        return {"k": self.k, "chunk_bytes": self.chunk_bytes}

    def state(self) -> dict[str, Tensor]:
        return self._index.state() | self._of.state()

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        detector = cls(**settings)
        detector._index = KNN.from_state(state, detector._index.settings())
        detector._of = Representation.from_state(state)
        detector._num_classes = int(state["num_classes"])
        return detector
