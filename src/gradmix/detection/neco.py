"""How much of an image lies in the space of the training images (NECO), after Ammar et al. 2024, "NECO:
Neural Collapse Based Out-of-Distribution Detection"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import UserError
from .detector import Detector, require_classes
from .learned import chunks, mean_of_rows, second_moment
from .nno import class_means
from .outputs import Outputs, Scores, clamp_to_finite, require_finite, require_known_labels

_TENSORS = ("mean", "scale", "axes", "means", "classes", "with_logits", "num_classes")
_SMALLEST = 1e-12  # length of a standardized activation


class NECO(Detector):
    """Share of the length of the standardized activation that lies along the leading axes of training.

    score = ‖Pᵀs‖ / ‖s‖, s = (h − mean)/deviation per dimension, P the leading principal axes of s over the
    training images, as many as hold ``variance`` (0.9) of theirs; times max f where the network has a
    classifier, which then names the image too. Without one, the nearest class mean in s names it.
    """

    name = "neco"
    needs = frozenset({"penultimate"})
    prefers = frozenset({"logits"})

    def __init__(self, variance: float = 0.9) -> None:
        if not 0 < variance <= 1:
            raise UserError(f"neco needs variance above 0 and at most 1, not {variance}")
        self.variance = variance
        self._learned: dict[str, Tensor] = {}
        self._with_logits = False

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        require_known_labels(train, num_classes)
        assert train.penultimate is not None
        h = require_finite(train.penultimate, "penultimate activations")
        mean = mean_of_rows(h)
        moment = second_moment(h, mean)
        deviation = moment.diagonal().sqrt()
        scale = deviation.where(deviation > 0, torch.ones_like(deviation))
        values, axes = torch.linalg.eigh(moment / (scale[:, None] * scale))
        held = values.clamp_min(0).flip(0).cumsum(0)
        dim = min(int((held < self.variance * held[-1]).sum()) + 1, len(held))
        self._with_logits = train.logits is not None
        means = (class_means(h, train.labels, num_classes) - mean) / scale
        classes = torch.bincount(train.labels, minlength=num_classes).nonzero()[:, 0]
        self._learned = {
            "mean": mean,
            "scale": scale,
            "axes": axes[:, -dim:].contiguous(),
            "means": means[classes].contiguous(),
            "classes": classes,
            "with_logits": torch.tensor([self._with_logits]),
            "num_classes": torch.tensor([num_classes]),
        }

    def class_scores(self, test: Outputs) -> Tensor:
        self._require_ready(test)
        t = self._learned
        if self._with_logits:
            assert test.logits is not None
            return test.logits.double()
        found = torch.full((len(test.features), int(t["num_classes"])), -torch.inf, dtype=torch.float64)
        for part in chunks(len(found)):
            found[part, t["classes"]] = -torch.cdist(self._standardize(test, part), t["means"])
        return found

    def score_outputs(self, test: Outputs) -> Scores:
        label = self.class_scores(test).argmax(dim=1)
        score = torch.empty(len(label), dtype=torch.float64, device=label.device)
        for part in chunks(len(label)):
            s = self._standardize(test, part)
            leading = torch.linalg.vector_norm(s @ self._learned["axes"], dim=1)
            score[part] = leading / torch.linalg.vector_norm(s, dim=1).clamp_min(_SMALLEST)
        if self._with_logits:
            assert test.logits is not None
            score *= test.logits.double().amax(dim=1)
        return Scores(clamp_to_finite(score), label)

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        t, h, logits = self._learned, outputs.penultimate, outputs.logits
        assert h is not None
        s = (h.double() - t["mean"]) / t["scale"]
        score = (s @ t["axes"]).square().sum(dim=1).sqrt() / s.square().sum(dim=1).sqrt().clamp_min(_SMALLEST)
        if self._with_logits:
            assert logits is not None
            return clamp_to_finite(score * logits.double().amax(dim=1)), logits.argmax(dim=1)
        distance = (s[:, None] - t["means"]).square().sum(dim=2)  # ONNX has no cdist
        return clamp_to_finite(score), t["classes"][distance.argmin(dim=1)]

    def _standardize(self, test: Outputs, part: slice) -> Tensor:
        assert test.penultimate is not None
        return (test.penultimate[part].double() - self._learned["mean"]) / self._learned["scale"]

    def _require_ready(self, test: Outputs) -> None:
        self.require(test)
        t = self._require_fitted()
        assert test.penultimate is not None
        require_finite(test.penultimate, "penultimate activations")
        if test.penultimate.shape[1] != len(t["mean"]):
            raise UserError(
                f"penultimate activations have {test.penultimate.shape[1]} dimensions, those of the training "
                f"images {len(t['mean'])}; use the same network for both"
            )
        if self._with_logits:
            if test.logits is None:
                raise UserError("this neco detector was fitted with logits, and these outputs have none")
            require_classes(require_finite(test.logits, "logits"), int(t["num_classes"]), "logits")

    def _require_fitted(self) -> dict[str, Tensor]:
        if not self._learned:
            raise UserError("this neco detector has seen no training images; call fit first")
        return self._learned

    def settings(self) -> dict[str, Any]:
        return {"variance": self.variance}

    def state(self) -> dict[str, Tensor]:
        return dict(self._require_fitted())

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        detector = cls(**settings)
        detector._learned = {name: state[name] for name in _TENSORS}
        detector._with_logits = bool(state["with_logits"])
        return detector
