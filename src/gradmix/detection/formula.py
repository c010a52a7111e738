"""Scores that learn nothing: a formula on what the network gives for one image."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ..errors import UserError
from .detector import Detector
from .outputs import Outputs, Scores, require_finite


class FormulaDetector(Detector):
    """A formula on the parts in ``needs``; the label is the argmax of the part ``named_by`` (N, K)."""

    learns = False
    named_by: ClassVar[str] = "logits"
    _num_classes: int | None = None

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        self._num_classes = num_classes

    def class_scores(self, test: Outputs) -> Tensor:
        self.require(test)
        values = _part(test, self.named_by)
        require_classes(values, self._num_classes, self.named_by)
        return values

    def score_outputs(self, test: Outputs) -> Scores:
        values = self.class_scores(test)
        parts = {name: _part(test, name) for name in self.needs - {self.named_by}}
        return Scores(self.score_parts(parts | {self.named_by: values}), values.argmax(dim=1))

    def state(self) -> dict[str, Tensor]:
        return {} if self._num_classes is None else {"num_classes": torch.tensor([self._num_classes])}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        detector = cls(**settings)
        if "num_classes" in state:
            detector._num_classes = int(state["num_classes"])
        return detector

    @abstractmethod
    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Return the score (N,) of the parts in ``needs``, by name, each float64 and finite."""


def require_classes(values: Tensor, num_classes: int | None, what: str) -> None:
    """Refuse values (N, K) of another number of classes than the detector was fitted to."""
    if num_classes is not None and values.shape[1] != num_classes:
        raise UserError(f"{what} of {values.shape[1]} classes, but {num_classes} are known")


def require_positive(name: str, temperature: float) -> float:
    """Return the temperature of the detector called ``name``, or raise if there is no such softmax."""
    if not 0 < temperature < float("inf"):
        raise UserError(f"{name} needs a positive temperature, not {temperature}")
    return temperature


def _part(outputs: Outputs, name: str) -> Tensor:
    values = outputs.logits if name == "logits" else outputs.extra[name]
    assert values is not None
    return require_finite(values, name).double()
