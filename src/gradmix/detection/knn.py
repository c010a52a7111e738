"""Nearest neighbours of the known classes: the detector and classifier of the paper.

For a test feature z and the training features Z_c of class c,
d_c(z) = sum of the k largest cosine similarities between z and Z_c;
the label is argmax_c d_c and the score is d of that class in proportion to all (see ``normalisation``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import UserError, choose
from ..progress import progress
from .approximate import ApproximateIndex
from .bank import DEFAULT_CHUNK_BYTES, Bank, check_bank_inputs, unit_rows
from .normalisation import NORMALIZATIONS, known_score
from .outputs import Outputs, Scores, require_finite, require_known_labels

INDEXES = ("exact", "ivf")


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
    Memory: ``fit`` keeps the training features as float32 (4·d bytes an image, and 24 for its label and
    place; classes of unequal size may be padded by up to a fifth). On the way it works on 4,096 images at a
    time, and sorting the labels takes 40 bytes an image. Everything that ``score`` holds at one time stays
    below ``chunk_bytes`` (or 1 MiB, if that is more), however many training images there are; what it
    returns is 16 bytes a query.

    ``index``: "exact", or "ivf", which finds most of the neighbours faster (``approximate``; needs faiss).
    """

    name = "knn"
    needs_logits = False

    def __init__(
        self,
        k: int = 3,
        normalize: str = "shifted",
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        temperature: float = 0.1,
        index: str = "exact",
    ) -> None:
        if k < 1:
            raise UserError(f"knn needs k of at least 1, not {k}")
        if not temperature > 0:
            raise UserError(f"knn needs a positive temperature, not {temperature}")
        self.k = k
        self.normalize = choose("normalisation", normalize, NORMALIZATIONS)
        self.temperature = temperature
        self.chunk_bytes = chunk_bytes
        self.index = choose("index", index, INDEXES)
        self._bank: Bank | None = None
        self._search: Bank | ApproximateIndex | None = None

    def fit(self, train: Outputs, num_classes: int) -> Self:
        """Remember the training features (as unit vectors, class by class)."""
        require_known_labels(train, num_classes)
        return self._learn(_laid_out(train, num_classes, unit_rows))

    def score(self, test: Outputs) -> Scores:
        """Score and classify images that are not among the training images."""
        return self._score(len(test.features), lambda part: (self._unit(test.features[part]), None))

    def leave_one_out(self) -> Scores:
        """Scores of the training images themselves, each left out of its own neighbours, in fit's order.

        For a threshold where no images were held out. Mildly optimistic: the network has seen them.
        """
        bank = self._fitted()
        if len(bank.labels) < 2:
            raise UserError("leaving one out needs at least two training images; there is one")
        return self._score(len(bank.labels), lambda part: (bank.features[bank.place[part]], bank.place[part]))

    def class_similarity(self, test_z: Tensor) -> Tensor:
        """d_c of test features (N, d): (N, C), -inf for a class without images."""
        bank = self._fitted()
        chunks = [
            self._searched().class_similarity(self._unit(test_z[part]), self.k, self.chunk_bytes)
            for part in bank.query_chunks(len(test_z), 8 * bank.num_classes, self.chunk_bytes)
        ]
        return torch.cat(chunks) if chunks else test_z.new_empty((0, bank.num_classes))

    def neighbours(self, test_z: Tensor, top: int = 5) -> Neighbours:
        """The ``top`` nearest training images of each test feature (all of them if there are fewer)."""
        bank = self._fitted()
        if top < 1:
            raise UserError(f"top must be at least 1, not {top}")
        top = min(top, len(bank.labels))
        index = torch.empty((len(test_z), top), dtype=torch.int64, device=bank.features.device)
        similarity = bank.features.new_empty((len(test_z), top))
        for part in bank.query_chunks(len(test_z), 8 * top, self.chunk_bytes):
            index[part], similarity[part] = bank.nearest(self._unit(test_z[part]), top, self.chunk_bytes)
        return Neighbours(index, similarity, bank.labels[index])

    def with_normalize(self, normalize: str) -> Self:
        """The same neighbours (not a copy of them) under another normalisation of the score."""
        other = type(self)(**(self.settings() | {"normalize": normalize}))
        other._bank, other._search = self._bank, self._search
        return other

    def settings(self) -> dict[str, Any]:
        """What ``__init__`` was given, as JSON can hold it."""
        return {
            "k": self.k,
            "normalize": self.normalize,
            "temperature": self.temperature,
            "chunk_bytes": self.chunk_bytes,
            "index": self.index,
        }

    def state(self) -> dict[str, Tensor]:
        """What ``fit`` learned, as plain tensors: unit ``features`` and ``labels`` in fit's order."""
        bank = self._fitted()
        return {
            "features": bank.features[bank.place],
            "labels": bank.labels,
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
        return knn._learn(_laid_out(train, num_classes, lambda unit: unit))

    def _score(self, count: int, queries: Callable[[slice], tuple[Tensor, Tensor | None]]) -> Scores:
        """``queries(part)``: unit features (n, d), and the rows of the bank that they are, if they are."""
        bank = self._fitted()
        score = torch.empty(count, dtype=torch.float64, device=bank.features.device)
        label = torch.empty(count, dtype=torch.int64, device=bank.features.device)
        with progress("nearest neighbours", count) as advance:
            for part in bank.query_chunks(count, 8 * bank.num_classes, self.chunk_bytes):
                unit, own = queries(part)
                d = self._searched().class_similarity(unit, self.k, self.chunk_bytes, own)
                score[part] = known_score(d, self.k, self.normalize, self.temperature)
                label[part] = d.argmax(dim=1)
                advance(len(unit))
        return Scores(score, label)

    def _learn(self, bank: Bank) -> Self:
        self._bank = bank
        self._search = bank if self.index == "exact" else ApproximateIndex(bank)
        return self

    def _unit(self, z: Tensor) -> Tensor:
        bank = self._fitted()
        check_bank_inputs(z, bank)
        return unit_rows(require_finite(z.to(bank.features.device), "features"))

    def _searched(self) -> Bank | ApproximateIndex:
        return self._search or self._fitted()

    def _fitted(self) -> Bank:
        if self._bank is None:
            raise UserError("this knn detector has seen no training images; call fit first")
        return self._bank


def _laid_out(train: Outputs, num_classes: int, unit: Callable[[Tensor], Tensor]) -> Bank:
    """The bank of ``unit(features)``, all of which must be finite."""

    def ready(some: Tensor) -> Tensor:
        if not bool(torch.isfinite(some).all()):
            require_finite(train.features, "features")  # names the image
        return unit(some)

    return Bank.build(train.features, train.labels, num_classes, ready)
