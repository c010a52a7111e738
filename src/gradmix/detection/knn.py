"""Nearest neighbours of the known classes: the detector and classifier of the paper.

For a test feature z and the training features Z_c of class c,
d_c(z) = sum of the k largest cosine similarities between z and Z_c;
the label is argmax_c d_c and the score is d of that class in proportion to all (see ``normalisation``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import UserError, choose
from .bank import DEFAULT_CHUNK_BYTES, Bank, check_bank_inputs, unit_rows
from .normalisation import NORMALIZATIONS, known_score
from .outputs import Outputs, Scores, require_finite, require_known_labels


def knn_similarity(
    test_z: Tensor,
    train_z: Tensor,
    train_labels: Tensor,
    num_classes: int,
    k: int = 3,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> Tensor:
    """d_c = Σ of the k largest cos(z, z') over z' of class c; (N, d), (M, d), (M,) -> (N, C) float32.

    A class with fewer than k images: the mean of what there is, times k. A class with none: -inf.

    >>> knn_similarity(torch.tensor([[1.0, 0.0]]), torch.eye(2), torch.tensor([0, 1]), num_classes=3, k=2)
    tensor([[2., 0., -inf]])
    """
    knn = KNN(k=k, chunk_bytes=chunk_bytes).fit(Outputs(train_z, train_labels), num_classes)
    return knn.class_similarity(test_z)


@dataclass(frozen=True)
class Neighbours:
    """The nearest training images, nearest first: ``index`` (N, top) in the order given to ``fit``,
    ``similarity`` (N, top) cosines, ``label`` (N, top) their classes."""

    index: Tensor
    similarity: Tensor
    label: Tensor


class KNN:
    """The k nearest training images of each class, exactly, in bounded memory.

    ``normalize``: "shifted", "sum" (as printed), "softmax" or "none"; ``temperature`` is of the softmax.
    Temporaries stay below ``chunk_bytes`` however many training images there are.
    """

    name = "knn"
    needs_logits = False

    def __init__(
        self,
        k: int = 3,
        normalize: str = "shifted",
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        temperature: float = 0.1,
    ) -> None:
        if k < 1:
            raise UserError(f"knn needs k of at least 1, not {k}")
        if not temperature > 0:
            raise UserError(f"knn needs a positive temperature, not {temperature}")
        self.k = k
        self.normalize = choose("normalisation", normalize, NORMALIZATIONS)
        self.temperature = temperature
        self.chunk_bytes = chunk_bytes
        self._bank: Bank | None = None

    def fit(self, train: Outputs, num_classes: int) -> Self:
        """Remember the training features (as unit vectors, sorted by class)."""
        require_known_labels(train, num_classes)
        unit = unit_rows(require_finite(train.features, "features"))
        self._bank = Bank.build(unit, train.labels, num_classes)
        return self

    def score(self, test: Outputs) -> Scores:
        """Score and classify images that are not among the training images."""
        return self._score(test.features, own=None)

    def leave_one_out(self) -> Scores:
        """Scores of the training images themselves, each left out of its own neighbours, in fit's order.

        For a threshold where no images were held out. Mildly optimistic: the network has seen them.
        """
        bank = self._fitted()
        if len(bank.features) < 2:
            raise UserError("leaving one out needs at least two training images; there is one")
        rows = torch.arange(len(bank.features), device=bank.features.device)
        sorted_scores = self._score(bank.features, own=rows)
        back = torch.argsort(bank.order)
        return Scores(sorted_scores.score[back], sorted_scores.label[back])

    def class_similarity(self, test_z: Tensor) -> Tensor:
        """d_c of test features (N, d): (N, C), -inf for a class without images."""
        bank = self._fitted()
        chunks = [
            bank.class_similarity(self._unit(test_z[part]), self.k, self.chunk_bytes)
            for part in bank.query_chunks(len(test_z), 8 * bank.num_classes, self.chunk_bytes)
        ]
        return torch.cat(chunks) if chunks else test_z.new_empty((0, bank.num_classes))

    def neighbours(self, test_z: Tensor, top: int = 5) -> Neighbours:
        """The ``top`` nearest training images of each test feature (all of them if there are fewer)."""
        bank = self._fitted()
        if top < 1:
            raise UserError(f"top must be at least 1, not {top}")
        top = min(top, len(bank.features))
        rows = torch.empty((len(test_z), top), dtype=torch.int64, device=bank.features.device)
        similarity = bank.features.new_empty((len(test_z), top))
        for part in bank.query_chunks(len(test_z), 8 * top, self.chunk_bytes):
            rows[part], similarity[part] = bank.nearest(self._unit(test_z[part]), top, self.chunk_bytes)
        return Neighbours(bank.order[rows], similarity, bank.labels[rows])

    def settings(self) -> dict[str, Any]:
        """What ``__init__`` was given, as JSON can hold it."""
        return {
            "k": self.k,
            "normalize": self.normalize,
            "temperature": self.temperature,
            "chunk_bytes": self.chunk_bytes,
        }

    def state(self) -> dict[str, Tensor]:
        """What ``fit`` learned, as plain tensors: unit ``features`` and ``labels`` in fit's order."""
        bank = self._fitted()
        back = torch.argsort(bank.order)
        return {
            "features": bank.features[back],
            "labels": bank.labels[back],
            "num_classes": torch.tensor([bank.num_classes]),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        """The detector that ``state()`` and ``settings()`` describe; it scores to the same bits."""
        missing = [key for key in ("features", "labels", "num_classes") if key not in state]
        if missing:
            raise UserError(f"the saved knn detector lacks {', '.join(missing)}; save the model again")
        knn = cls(**settings)
        train, num_classes = Outputs(state["features"], state["labels"]), int(state["num_classes"])
        require_known_labels(train, num_classes)
        # Not through fit: scaling unit vectors to unit length again would move their last bit.
        knn._bank = Bank.build(require_finite(train.features, "features"), train.labels, num_classes)
        return knn

    def _score(self, test_z: Tensor, own: Tensor | None) -> Scores:
        bank = self._fitted()
        score = torch.empty(len(test_z), dtype=torch.float64, device=bank.features.device)
        label = torch.empty(len(test_z), dtype=torch.int64, device=bank.features.device)
        for part in bank.query_chunks(len(test_z), 8 * bank.num_classes, self.chunk_bytes):
            # Training features are unit vectors already, see from_state.
            unit = test_z[part] if own is not None else self._unit(test_z[part])
            d = bank.class_similarity(unit, self.k, self.chunk_bytes, None if own is None else own[part])
            score[part] = known_score(d, self.k, self.normalize, self.temperature)
            label[part] = d.argmax(dim=1)
        return Scores(score, label)

    def _unit(self, z: Tensor) -> Tensor:
        bank = self._fitted()
        check_bank_inputs(z, bank)
        return unit_rows(require_finite(z.to(bank.features.device), "features"))

    def _fitted(self) -> Bank:
        if self._bank is None:
            raise UserError("this knn detector has seen no training images; call fit first")
        return self._bank
