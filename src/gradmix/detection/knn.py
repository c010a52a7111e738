"""Nearest neighbours of the known classes: the detector and classifier of the paper.

For a test feature z and the training features Z_c of class c,
d_c(z) = sum of the k largest cosine similarities between z and Z_c;
the label is argmax_c d_c and the score is d of that class in proportion to all (:func:`known_score`).
The paper divides the winner's similarity by the sum over classes. Cosines can be negative, so that sum can
reach zero or fall below it, where the printed ratio explodes or changes sign: hence four ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from ..errors import UserError, choose
from ..progress import progress
from .approximate import ApproximateIndex
from .bank import DEFAULT_CHUNK_BYTES, Bank, check_bank_inputs, unit_rows
from .detector import Detector
from .outputs import Outputs, Scores, require_finite, require_known_labels

INDEXES = ("exact", "ivf")
Normalization = Literal["shifted", "sum", "softmax", "none"]
SCORE_NORMALIZATIONS: tuple[str, ...] = get_args(Normalization)

# Sums below this (in units of k) are taken for this. It is far below any sum that says something: a
# single class at 84 degrees from the image gives 0.1.
_SMALLEST_SUM = 1e-3


def knn_similarity(
    test_z: Tensor,
    train_z: Tensor,
    train_labels: Tensor,
    num_classes: int,
    k: int = 3,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> Tensor:
    """Return the similarity of test features to each class.

    d_c = Σ of the k largest cos(z, z') over z' of class c; (N, d), (M, d), (M,) -> (N, C) float32.

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


class KNN(Detector):
    """The k nearest training images of each class, exactly, in bounded memory.

    ``normalize``: "shifted", "sum" (as printed), "softmax" or "none"; ``temperature`` is of the softmax.
    Memory: ``fit`` keeps the training features as float32 (4·d bytes per image, and 24 for its label and
    row; classes of unequal size may be padded by up to a fifth). On the way it works on 4,096 images at a
    time, and sorting the labels takes 40 bytes per image. Everything that ``score`` holds at one time stays
    below ``chunk_bytes`` (or 1 MiB, if that is more), however many training images there are; what it
    returns is 16 bytes per query.

    ``index``: "exact", or "ivf", which finds most of the neighbours faster (``approximate``; needs faiss).

    Exemplars are images of the index that speak for their class alone, as a person taught them:
    d_c = max(Σ of the k largest cosines, k · the largest cosine to an exemplar of c, of those that reach it).
    An exemplar reaches images whose cosine to it is at least its ``exemplar_reach``.
    """

    name = "knn"

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
        self.normalize = choose("normalisation", normalize, SCORE_NORMALIZATIONS)
        self.temperature = temperature
        self.chunk_bytes = chunk_bytes
        self.index = choose("index", index, INDEXES)
        self._bank: Bank | None = None
        self._saved: tuple[Outputs, int] | None = None  # features from a file, not yet laid out for searching
        self._lengths: Tensor | None = None  # (M,) of the training features, in fit's order
        self._search: Bank | ApproximateIndex | None = None
        self._exemplars: Tensor | None = None  # (E,) their places in fit's order
        self._reach: Tensor | None = None  # (E,) the cosines from which on they count

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        """Remember the training features (as unit vectors, class by class)."""
        require_known_labels(train, num_classes)
        self._lengths = _lengths(train.features)
        self._search_in(_lay_out(train, num_classes, unit_rows))

    def score_outputs(self, test: Outputs) -> Scores:
        """Score and classify images that are not among the training images."""
        return self._score(len(test.features), lambda part: (self._unit(test.features[part]), None))

    def leave_one_out(self) -> Scores:
        """Score the training images themselves, each left out of its own neighbours, in fit's order.

        For a threshold where no images were held out. Mildly optimistic: the network has seen them.
        """
        bank = self._require_bank()
        if len(bank.labels) < 2:
            raise UserError("leaving one out needs at least two training images; there is one")
        return self._score(
            len(bank.labels), lambda part: (bank.features[bank.row_of_image[part]], bank.row_of_image[part])
        )

    def class_similarity(self, test_z: Tensor) -> Tensor:
        """Return d_c of test features (N, d): (N, C), -inf for a class without images."""
        bank = self._require_bank()
        chunks = [
            self._similarity(self._unit(test_z[part]))
            for part in bank.query_chunks(len(test_z), 8 * bank.num_classes, self.chunk_bytes)
        ]
        return torch.cat(chunks) if chunks else test_z.new_empty((0, bank.num_classes))

    def neighbours(self, test_z: Tensor, top: int = 5) -> Neighbours:
        """Return the ``top`` nearest training images of each test feature (or all, if there are fewer)."""
        bank = self._require_bank()
        if top < 1:
            raise UserError(f"top must be at least 1, not {top}")
        top = min(top, len(bank.labels))
        index = torch.empty((len(test_z), top), dtype=torch.int64, device=bank.features.device)
        similarity = bank.features.new_empty((len(test_z), top))
        for part in bank.query_chunks(len(test_z), 8 * top, self.chunk_bytes):
            index[part], similarity[part] = bank.nearest(self._unit(test_z[part]), top, self.chunk_bytes)
        return Neighbours(index, similarity, bank.labels[index])

    def class_scores(self, test: Outputs) -> Tensor:
        return self.class_similarity(test.features).double()

    def score_similarities(self, d: Tensor) -> Tensor:
        """Return the score (N,) of class similarities d (N, C)."""
        return known_score(d, self.k, self.normalize, self.temperature)

    def with_settings(self, **settings: Any) -> Self:
        """Return a detector on the same neighbours (not a copy of them) with some settings replaced."""
        other = type(self)(**(self.settings() | settings))
        if self._bank is not None or self._saved is not None:
            bank, other._lengths = self._require_bank(), self._lengths
            other._exemplars, other._reach = self._exemplars, self._reach
            if other.index == self.index:
                other._search, other._bank = self._search, bank
            else:
                other._search_in(bank)
        return other

    def training_features(self) -> Outputs:
        """Return the features and labels that ``fit`` was given, but for rounding, in its order.

        Of an index from a file of version 0, which did not keep their lengths, as unit vectors.
        """
        bank = self._require_bank()
        unit = bank.features[bank.row_of_image]
        return Outputs(unit if self._lengths is None else unit * self._lengths[:, None], bank.labels)

    @property
    def keeps_lengths(self) -> bool:
        """Whether the training features are known by more than their direction."""
        return self._lengths is not None

    def settings(self) -> dict[str, Any]:
        """Return what ``__init__`` was given, as JSON can hold it."""
        return {
            "k": self.k,
            "normalize": self.normalize,
            "temperature": self.temperature,
            "chunk_bytes": self.chunk_bytes,
            "index": self.index,
        }

    def state(self) -> dict[str, Tensor]:
        """Return unit ``features``, their ``labels`` and ``lengths``, in fit's order; and ``exemplars``
        with their ``exemplar_reach``."""
        bank = self._require_bank()
        return {
            "features": bank.features[bank.row_of_image],
            "labels": bank.labels,
            "num_classes": torch.tensor([bank.num_classes]),
            **({} if self._lengths is None else {"lengths": self._lengths}),
            **({} if self._exemplars is None else {"exemplars": self._exemplars}),
            **({} if self._reach is None else {"exemplar_reach": self._reach}),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        """Return the detector that ``state()`` and ``settings()`` describe; it scores to the same bits."""
        missing = [key for key in ("features", "labels", "num_classes") if key not in state]
        if missing:
            raise UserError(f"the saved knn detector lacks {', '.join(missing)}; save the model again")
        knn = cls(**settings)
        train, num_classes = Outputs(state["features"], state["labels"]), int(state["num_classes"])
        require_known_labels(train, num_classes)
        knn._lengths = state.get("lengths")
        if knn._lengths is not None and knn._lengths.shape != train.labels.shape:
            raise UserError(f"{len(train.labels)} features but {len(knn._lengths)} lengths of them")
        if "exemplars" in state and len(state["exemplars"]):
            knn._exemplars = _check_places(state["exemplars"], len(train.labels))
            knn._reach = _check_reach(state.get("exemplar_reach"), len(knn._exemplars))
        # Laid out when first searched: a model that decides by something else may never be.
        knn._saved = train, num_classes
        return knn

    def _score(self, count: int, queries: Callable[[slice], tuple[Tensor, Tensor | None]]) -> Scores:
        """Score ``queries(part)``: unit features (n, d), and their rows in the bank if they are in it."""
        bank = self._require_bank()
        score = torch.empty(count, dtype=torch.float64, device=bank.features.device)
        label = torch.empty(count, dtype=torch.int64, device=bank.features.device)
        with progress("nearest neighbours", count) as advance:
            for part in bank.query_chunks(count, 8 * bank.num_classes, self.chunk_bytes):
                unit, own = queries(part)
                d = self._similarity(unit, own)
                score[part] = self.score_similarities(d)
                label[part] = d.argmax(dim=1)
                advance(len(unit))
        return Scores(score, label)

    def _similarity(self, unit: Tensor, own: Tensor | None = None) -> Tensor:
        """Return d_c of unit features (n, d); ``own`` (n,) are their rows in the bank, if they are in it."""
        bank = self._require_bank()
        d = self._require_search().class_similarity(unit, self.k, self.chunk_bytes, own)
        if self._exemplars is None or self._reach is None:
            return d
        rows = bank.row_of_image[self._exemplars]
        cosine = (unit @ bank.features[rows].T).clamp(-1.0, 1.0)
        cosine = cosine.masked_fill(cosine < self._reach, -torch.inf)
        if own is not None:
            cosine = cosine.masked_fill(own[:, None] == rows, -torch.inf)
        labels = bank.labels[self._exemplars].expand(len(unit), -1)
        return d.scatter_reduce(1, labels, cosine.to(d) * self.k, "amax")

    def _search_in(self, bank: Bank) -> None:
        self._search = bank if self.index == "exact" else ApproximateIndex(bank)
        self._bank, self._saved = bank, None

    def _unit(self, z: Tensor) -> Tensor:
        bank = self._require_bank()
        check_bank_inputs(z, bank)
        return unit_rows(require_finite(z.to(bank.features.device), "features"))

    def _require_search(self) -> Bank | ApproximateIndex:
        bank = self._require_bank()  # lays it out if need be
        return self._search or bank

    def _require_bank(self) -> Bank:
        saved, bank = self._saved, self._bank  # in this order, for another thread sets them in the other
        if bank is None:
            if saved is None:
                raise UserError("this knn detector has seen no training images; call fit first")
            # Not through fit: scaling unit vectors to unit length again would move their last bit.
            bank = _lay_out(*saved, lambda unit: unit)
            self._search_in(bank)  # two threads may both do it, to the same result
        return bank


def _lay_out(train: Outputs, num_classes: int, unit: Callable[[Tensor], Tensor]) -> Bank:
    """Return the bank of ``unit(features)``, all of which must be finite."""

    def ready(some: Tensor) -> Tensor:
        if not bool(torch.isfinite(some).all()):
            require_finite(train.features, "features")  # names the image
        return unit(some)

    return Bank.build(train.features, train.labels, num_classes, ready)


def _check_places(places: Tensor, count: int) -> Tensor:
    """Return the places of exemplars, all of which must be among ``count`` images."""
    if places.dim() != 1 or places.dtype != torch.int64 or not bool(((places >= 0) & (places < count)).all()):
        raise UserError(f"the exemplars must be places among {count} images")
    return places


def _check_reach(reach: Tensor | None, count: int) -> Tensor:
    """Return the reach of ``count`` exemplars, one cosine for each."""
    if reach is None or reach.shape != (count,) or not bool((reach.abs() <= 1).all()):
        raise UserError(f"the reach of {count} exemplars must be as many cosines")
    return reach


def _lengths(features: Tensor) -> Tensor:
    """Return ‖z‖ of each row (M, d) as float32 (M,), by way of float64, in which squares do not overflow."""
    found = features.new_empty(len(features), dtype=torch.float32)
    # Into one tensor: small results between large temporaries would scatter the memory, which then grows.
    for into, part in zip(torch.split(found, 4096), torch.split(features, 4096), strict=True):
        into.copy_(torch.linalg.vector_norm(part.double(), dim=1))
    return found


def known_score(similarity: Tensor, k: int, normalize: str = "shifted", temperature: float = 0.1) -> Tensor:
    """Return the score (N,) float64 of d_c (N, C), sums of k cosines; -inf marks a class without images.

    - ``sum``      max_c d_c / max(Σ_c d_c, 0.001·k). The printed score wherever Σ_c d_c ≥ 0.001·k. Below,
      the denominator stays at 0.001·k: the score keeps the sign of max_c d_c, grows with it, and joins the
      printed branch without a jump; its size is at most 1000.
    - ``shifted``  the same with every cosine mapped to (1 + cos)/2 ≥ 0, that is d_c to (k + d_c)/2.
      In [0, 1]; zero only for an image opposite to everything.
    - ``softmax``  max_c softmax(d_c / (k·temperature)).
    - ``none``     max_c d_c.

    A share among one says nothing (it is always 1): where a single class has images, ``shifted`` and
    ``softmax`` return the mean similarity to it, (1 + d/k)/2, so that one-class detection works.

    >>> known_score(torch.tensor([[3.0, 0.0, -3.0]]), k=3)
    tensor([0.6667], dtype=torch.float64)
    >>> known_score(torch.tensor([[3.0, -3.0, -3.0]]), k=3, normalize="sum")
    tensor([1000.], dtype=torch.float64)
    """
    d = similarity.double()
    present = d > -torch.inf
    if normalize == "none":
        return d.amax(dim=1)
    if normalize == "sum":
        return _share(d, present, k)
    shifted = (k + d) / 2
    if normalize == "softmax":
        share = torch.softmax(d / (k * temperature), dim=1).amax(dim=1)
    else:
        share = _share(shifted, present, k)
    alone = present.sum(dim=1) == 1
    return torch.where(alone, shifted.amax(dim=1) / k, share)


def _share(values: Tensor, present: Tensor, k: int) -> Tensor:
    total = torch.where(present, values, torch.zeros_like(values)).sum(dim=1)
    return values.amax(dim=1) / total.clamp_min(_SMALLEST_SUM * k)
