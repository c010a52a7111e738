"""Scores by tensors that are learned from the training images; the label is that of the largest logit."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ..errors import UserError
from .detector import Detector, require_classes
from .outputs import Outputs, Scores, clamp_to_finite, require_finite, require_known_labels

ROWS_AT_ONCE = 4096  # bounds the float64 copies


def chunks(count: int, size: int = ROWS_AT_ONCE) -> Iterator[slice]:
    """Cut ``count`` rows into slices of at most ``size``.

    >>> list(chunks(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


def mean_of_rows(rows: Tensor) -> Tensor:
    """Return the mean (d,) of rows (M, d) in float64, in bounded memory."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for part in chunks(len(rows)):
        total += rows[part].double().sum(dim=0)
    return total / max(1, len(rows))


def second_moment(rows: Tensor, center: Tensor) -> Tensor:
    """Return (1/M) Σ (h − c)(h − c)ᵀ (d, d) of rows (M, d) in float64, in bounded memory.

    ``center``: c (d,), or one of each row (M, d).
    """
    total = torch.zeros((rows.shape[1], rows.shape[1]), dtype=torch.float64, device=rows.device)
    for part in chunks(len(rows)):
        away = rows[part].double() - (center if center.ndim == 1 else center[part])
        total += away.T @ away
    return total / max(1, len(rows))


class LearnedDetector(Detector):
    """Learns the tensors named in ``learned``, which are its state; named by the logits.

    A subclass writes ``learn_from`` (set these tensors) and ``score_rows`` (the score of some images).
    """

    needs = frozenset({"penultimate", "logits"})
    learned: ClassVar[tuple[str, ...]] = ()
    _sizes: Tensor | None = None  # number of classes, dimensions of h (0 where h is not used)

    @abstractmethod
    def learn_from(self, train: Outputs, num_classes: int) -> None:
        """Set the tensors named in ``learned`` from training images, all finite and of known classes."""

    @abstractmethod
    def score_rows(self, rows: Outputs) -> Tensor:
        """Return the score (n,) of some thousand images, float64."""

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        if self.learns:
            require_known_labels(train, num_classes)
            self._check(train, num_classes)
            self.learn_from(train, num_classes)
        h = train.penultimate if self.learns and "penultimate" in self.needs else None
        self._sizes = torch.tensor([num_classes, 0 if h is None else h.shape[1]])

    def class_scores(self, test: Outputs) -> Tensor:
        self._require_ready(test)
        assert test.logits is not None
        return test.logits.double()

    def score_outputs(self, test: Outputs) -> Scores:
        self._require_ready(test)
        assert test.logits is not None
        score = torch.empty(len(test.features), dtype=torch.float64, device=test.logits.device)
        for part in chunks(len(score)):
            score[part] = self.score_rows(test.select(part))
        return Scores(clamp_to_finite(score), test.logits.argmax(dim=1))

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        assert outputs.logits is not None
        return clamp_to_finite(self.score_rows(outputs)), outputs.logits.argmax(dim=1)

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def state(self) -> dict[str, Tensor]:
        tensors = {name: getattr(self, name) for name in self.learned} if self._sizes is not None else {}
        return tensors | ({} if self._sizes is None else {"sizes": self._sizes})

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        detector = cls(**settings)
        if "sizes" in state:
            detector._sizes = state["sizes"]
            for name in cls.learned:
                setattr(detector, name, state[name])
        return detector

    def _require_ready(self, test: Outputs) -> None:
        self.require(test)
        if self._sizes is None:
            if self.learns:
                raise UserError(f"this {self.name} detector has seen no training images; call fit first")
            self._check(test, None)
            return
        classes, dim = self._sizes.tolist()
        if dim and test.penultimate is not None and test.penultimate.shape[1] != dim:
            raise UserError(
                f"penultimate activations have {test.penultimate.shape[1]} dimensions, those of the training "
                f"images {dim}; use the same network for both"
            )
        self._check(test, classes)

    def _check(self, outputs: Outputs, num_classes: int | None) -> None:
        if outputs.logits is not None:
            require_classes(outputs.logits, num_classes, "logits")
            require_finite(outputs.logits, "logits")
        if "penultimate" in self.needs and outputs.penultimate is not None:
            require_finite(outputs.penultimate, "penultimate activations")


def require_share(name: str, what: str, value: float, smallest: float = 0.0) -> float:
    """Return ``value`` if it lies in [smallest, 1), else raise."""
    if not smallest <= value < 1:
        raise UserError(f"{name} needs {what} of at least {smallest:g} and below 1, not {value}")
    return value


def require_count(name: str, what: str, value: int) -> int:
    """Return ``value`` if it is at least 1, else raise."""
    if value < 1:
        raise UserError(f"{name} needs {what} of at least 1, not {value}")
    return value
