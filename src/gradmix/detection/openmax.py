"""OpenMax (Bendale & Boult 2016): logits of classes that the image is far from are given to "unknown".

Learned from the training images: μ_c, the mean of the logits of class c's images that the network names
right, and the tail of their distances to it (:mod:`.extreme_value`), so that w_c(‖f − μ_c‖) in [0, 1] says
how unusual an image is for class c. A new image's logits are then revised by :func:`revise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import UserError, choose
from .detector import Detector, require_classes
from .extreme_value import LIBMR, Tails, check_shift
from .nno import class_means
from .outputs import Outputs, Scores, clamp_to_finite, require_finite, require_known_labels

OPENMAX_DISTANCES = ("euclidean", "cosine", "eucos")
OPENMAX_VARIANTS = ("openmax", "neal")
_EUCOS_DIVISOR = 200.0  # Bendale's; there for test images only, here for those of the tail, too
_FEWEST = 3  # correctly named images that a tail can be fitted to


def revise(
    logits: Tensor, w: Tensor, alpha: int | None, level: Tensor | float = 0.0, for_onnx: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the revised logits f̂ (N, K), and that of "unknown" (N,), of logits f and w, both (N, K).

    f̂_c = f_c − ω_c·w_c·(f_c − level), and "unknown" has level + Σ_c (f_c − f̂_c). ω = (α + 1 − i)/α for the
    class of rank i ≤ α, and 0 for those behind; without ``alpha`` it is 1 for all. ``level`` is 0 in the
    paper, so that a class of negative logit is raised by being unlikely; :class:`OpenMax` gives the smallest
    logit of each image (N, 1).
    """
    share = w if alpha is None else w * _rank_weights(logits, min(alpha, logits.shape[1]), for_onnx)
    removed = share * (logits - level)
    return logits - removed, (level + removed.sum(dim=1, keepdim=True))[:, 0]


def _rank_weights(logits: Tensor, alpha: int, for_onnx: bool) -> Tensor:
    """Return ω (N, K): (α + 1 − i)/α for the i-th largest logit, i ≤ α; of equal ones the first is larger."""
    by_rank = ((alpha - torch.arange(logits.shape[1], device=logits.device)) / alpha).clamp_min(0).double()
    if for_onnx:  # which has no stable sort; its runtime puts the first of equal ones first all the same
        order = torch.sort(logits, dim=1, descending=True).indices
    else:
        order = torch.sort(logits, dim=1, descending=True, stable=True).indices
    return torch.zeros_like(logits).scatter(1, order, by_rank.expand_as(logits))


def log_known_probability(revised: Tensor, unknown: Tensor) -> Tensor:
    """Return log(1 − P_0) (N,), where P = softmax(unknown, revised) and P_0 that of "unknown".

    It has the order of −P_0, and does not tie where P_0 rounds to 1.
    """
    x = unknown - torch.logsumexp(revised, dim=1)
    # −softplus(x), written out: onnxruntime has none for float64.
    return clamp_to_finite(-(x.clamp_min(0) + torch.log1p(torch.exp(-x.abs()))))


def distances(logits: Tensor, means: Tensor, kind: str, for_onnx: bool = False) -> Tensor:
    """Return distances (N, K) of logits (N, K) to the class means (K, K).

    ``cosine`` is 1 − cos; ``eucos`` is euclidean/200 + cosine. Each is computed for each pair by itself, so
    that an image's distances are the same in every batch.
    """
    pairwise = _pairwise_for_onnx if for_onnx else _pairwise
    euclidean = pairwise(logits, means) if kind != "cosine" else 0.0
    if kind == "euclidean":
        assert isinstance(euclidean, Tensor)
        return euclidean
    cosine = pairwise(_unit(logits), _unit(means)).square() / 2  # 1 − u·v of unit vectors
    return euclidean / _EUCOS_DIVISOR + cosine


def _pairwise(a: Tensor, b: Tensor) -> Tensor:
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def _pairwise_for_onnx(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] - b).square().sum(dim=2).sqrt()  # there is no cdist


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.square().sum(dim=1, keepdim=True).sqrt().clamp_min(1e-12)


class OpenMax(Detector):
    """OpenMax on logits: score log(1 − P_0), label = the largest revised logit.

    ``tail``: how many of the largest distances of each class are fitted; a class with fewer correctly named
    images takes them all, and one with fewer than 3 takes the mean of all its images, and is never revised.
    ``alpha``: how many of the largest logits are revised, at most all. ``openmax_distance``: euclidean,
    cosine or eucos. ``shift``: "libmr" (the published fits), or the T of :mod:`.extreme_value`.
    ``variant``: "openmax", or "neal", the one whose numbers Neal et al. 2018 print: all classes are revised,
    there is no "unknown", and the score is log Σ_c exp(f_c·(1 − w_c)).
    ``shift_logits``: revise towards the smallest logit of the image instead of 0, or negative logits would
    be raised. By default so for "openmax", and not for "neal", as published.
    """

    name = "openmax"
    needs = frozenset({"logits"})

    def __init__(
        self,
        tail: int = 20,
        alpha: int = 3,
        openmax_distance: str = "euclidean",
        shift: float | str = LIBMR,
        variant: str = "openmax",
        shift_logits: bool | None = None,
    ) -> None:
        if tail < _FEWEST:
            raise UserError(f"openmax needs a tail of at least {_FEWEST} images, not {tail}")
        if alpha < 1:
            raise UserError(f"openmax needs alpha of at least 1, not {alpha}")
        self.tail, self.alpha = tail, alpha
        self.openmax_distance = choose("openmax_distance", openmax_distance, OPENMAX_DISTANCES)
        self.shift = check_shift(shift)
        self.variant = choose("variant", variant, OPENMAX_VARIANTS)
        self.shift_logits = variant == "openmax" if shift_logits is None else shift_logits
        self._tails: Tails | None = None

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        """Compute the class means of the logits, and fit the tails of the distances to them."""
        self.require(train)
        require_known_labels(train, num_classes)
        f, labels = self._logits(train, num_classes), train.labels
        right = f.argmax(dim=1) == labels
        counts = torch.bincount(labels[right], minlength=num_classes)
        enough = counts >= _FEWEST
        used = right | ~enough[labels]
        self._means = class_means(f[used], labels[used], num_classes).nan_to_num(nan=0.0)
        tails = torch.zeros(num_classes, self.tail, dtype=torch.float64)
        there = torch.zeros(num_classes, self.tail, dtype=torch.bool)
        for c in enough.nonzero()[:, 0].tolist():
            own = distances(f[right & (labels == c)], self._means[c : c + 1], self.openmax_distance)[:, 0]
            largest = own.sort(descending=True).values[: self.tail]
            tails[c, : len(largest)], there[c, : len(largest)] = largest, True
        self._tails = Tails.fit(tails, there, self.shift)

    def class_scores(self, test: Outputs) -> Tensor:
        self.require(test)
        return self._revise(self._logits(test, len(self._fitted().fitted)))[0]

    def score_outputs(self, test: Outputs) -> Scores:
        self.require(test)
        revised, unknown = self._revise(self._logits(test, len(self._fitted().fitted)))
        return Scores(self._score(revised, unknown), revised.argmax(dim=1))

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        revised, unknown = self._revise(self._read(outputs), for_onnx=True)
        return self._score(revised, unknown), revised.argmax(dim=1)

    def settings(self) -> dict[str, Any]:
        names = ("tail", "alpha", "openmax_distance", "shift", "variant", "shift_logits")
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, Tensor]:
        t = self._fitted()
        fits = {"location": t.location, "width": t.width, "origin": t.origin, "fitted": t.fitted}
        return {"means": self._means, **fits}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        detector = cls(**settings)
        detector._means = state["means"]
        fits = [state[name] for name in ("location", "width", "origin", "fitted")]
        detector._tails = Tails(fits[0], fits[1], fits[2], fits[3], detector.shift)
        return detector

    def _logits(self, outputs: Outputs, num_classes: int) -> Tensor:
        assert outputs.logits is not None
        require_classes(outputs.logits, num_classes, "logits")
        return require_finite(self._read(outputs), "logits")

    def _read(self, outputs: Outputs) -> Tensor:
        """Return the outputs that are revised, unchecked."""
        assert outputs.logits is not None
        return outputs.logits.double()

    def _revise(self, logits: Tensor, for_onnx: bool = False) -> tuple[Tensor, Tensor]:
        means, tails = self._means.to(logits.device), self._fitted().to(logits.device)
        w = tails.outlyingness(distances(logits, means, self.openmax_distance, for_onnx))
        level = logits.amin(dim=1, keepdim=True) if self.shift_logits else 0.0
        return revise(logits, w, None if self.variant == "neal" else self.alpha, level, for_onnx)

    def _score(self, revised: Tensor, unknown: Tensor) -> Tensor:
        if self.variant == "neal":
            return clamp_to_finite(torch.logsumexp(revised, dim=1))
        return log_known_probability(revised, unknown)

    def _fitted(self) -> Tails:
        if self._tails is None:
            raise UserError("this openmax detector has seen no training images; call fit first")
        return self._tails
