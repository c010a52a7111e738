"""Relative Mahalanobis distance (Ren et al. 2021, "A Simple Fix to Mahalanobis Distance for Improving
Near-OOD Detection")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import UserError
from .detector import Detector
from .learned import chunks, mean_of_rows, second_moment
from .nno import class_means, whitening
from .outputs import Outputs, Scores, clamp_to_finite, require_known_labels
from .representation import Representation

_TENSORS = ("means", "whiten", "mean", "whiten_all", "classes", "num_classes")


class RMDS(Detector):
    """Squared Mahalanobis distance to the closest class, less that to all training images together.

    score = −min_c (MD_c − MD₀), label = the class of the minimum. MD_c = (h − μ_c)ᵀ Σ⁻¹ (h − μ_c) with the
    shared covariance Σ of the images around their class means; MD₀ the same with the overall mean and
    covariance. h, or z where there is no h. No settings; directions without variance as in :class:`NNO`.
    """

    name = "rmds"
    prefers = frozenset({"penultimate"})

    def __init__(self) -> None:
        self._learned: dict[str, Tensor] = {}
        self._of = Representation()

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        require_known_labels(train, num_classes)
        self._of = Representation.choose(train)
        h, labels = self._of.read(train), train.labels
        means, mean = class_means(h, labels, num_classes), mean_of_rows(h)
        # Around the class means, as the mean of the classes' own moments: no (M, d) copy of the means.
        total = second_moment(h, mean)
        there = torch.bincount(labels, minlength=num_classes)
        classes = there.nonzero()[:, 0]
        between = means[classes] - mean
        within = total - (between.T * (there[classes].double() / len(labels))) @ between
        self._learned = {
            "means": means[classes].contiguous(),
            "whiten": whitening(within),
            "mean": mean,
            "whiten_all": whitening(total),
            "classes": classes,
            "num_classes": torch.tensor([num_classes]),
        }

    def class_scores(self, test: Outputs) -> Tensor:
        h, num_classes = self._read(test), int(self._learned["num_classes"])
        found = torch.full((len(h), num_classes), -torch.inf, dtype=torch.float64)
        for part in chunks(len(h)):
            found[part, self._learned["classes"]] = -self._relative(h[part])
        return found

    def score_outputs(self, test: Outputs) -> Scores:
        """Return minus the smallest relative distance, and its class."""
        h = self._read(test)
        parts = [self._relative(h[part]).min(dim=1) for part in chunks(len(h))]
        score = torch.cat([torch.empty(0, dtype=torch.float64), *(-part.values for part in parts)])
        which = torch.cat([torch.empty(0, dtype=torch.int64), *(part.indices for part in parts)])
        return Scores(clamp_to_finite(score), self._learned["classes"][which])

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        h = outputs.penultimate if self._of.penultimate else outputs.features
        assert h is not None
        t, away = self._learned, h.double() - self._learned["mean"]
        # The squared distances written out, for ONNX has no cdist.
        offset = (away @ t["whiten"])[:, None] - (t["means"] - t["mean"]) @ t["whiten"]  # (N, C', d)
        total = (away @ t["whiten_all"]).square().sum(dim=1, keepdim=True)
        relative = offset.square().sum(dim=2) - total
        return clamp_to_finite(-relative.amin(dim=1)), t["classes"][relative.argmin(dim=1)]

    def _relative(self, h: Tensor) -> Tensor:
        """Return MD_c − MD₀ (n, C') of h (n, d) for the classes that have images."""
        t = self._learned
        away = h.double() - t["mean"]  # offsets common to all would cost digits
        own = torch.cdist(away @ t["whiten"], (t["means"] - t["mean"]) @ t["whiten"]).square()
        return own - (away @ t["whiten_all"]).square().sum(dim=1, keepdim=True)

    def _read(self, test: Outputs) -> Tensor:
        if not self._learned:
            raise UserError("this rmds detector has seen no training images; call fit first")
        h = self._of.read(test)
        if h.shape[1] != len(self._learned["mean"]):
            raise UserError(
                f"features have {h.shape[1]} dimensions, the training features "
                f"{len(self._learned['mean'])}; use the same network for both"
            )
        return h

    def state(self) -> dict[str, Tensor]:
        if not self._learned:
            raise UserError("this rmds detector has seen no training images; call fit first")
        return self._learned | self._of.state()

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        detector = cls(**settings)
        detector._learned = {name: state[name] for name in _TENSORS}
        detector._of = Representation.from_state(state)
        return detector
