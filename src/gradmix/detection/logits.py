"""Scores from a classifier's logits (N, C). Each returns (N,) float64, higher = more likely known.

Computed in float64: in float32 the confident half of a test set would tie at a softmax of exactly 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor

from ..errors import UserError
from .outputs import Outputs, Scores, clamp_to_finite, require_finite


def msp(logits: Tensor) -> Tensor:
    """Maximum softmax probability: max_c p_c (Hendrycks & Gimpel 2017).

    >>> msp(torch.zeros(1, 4))
    tensor([0.2500], dtype=torch.float64)
    """
    return torch.softmax(logits.double(), dim=1).amax(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """Minus the entropy of the softmax: Σ_c p_c log p_c, so that certain is higher.

    >>> entropy(torch.zeros(1, 4)).exp()
    tensor([0.2500], dtype=torch.float64)
    """
    p = torch.softmax(logits.double(), dim=1)
    return torch.xlogy(p, p).sum(dim=1)


def mls(logits: Tensor) -> Tensor:
    """Maximum logit score: max_c l_c (Vaze et al. 2022).

    >>> mls(torch.tensor([[1.0, 5.0, -2.0]]))
    tensor([5.], dtype=torch.float64)
    """
    return clamp_to_finite(logits.double().amax(dim=1))


def energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Minus the free energy: T · log Σ_c exp(l_c / T) (Liu et al. 2020).

    >>> energy(torch.zeros(1, 4)).exp()
    tensor([4.], dtype=torch.float64)
    """
    return clamp_to_finite(temperature * torch.logsumexp(logits.double() / temperature, dim=1))


class _LogitDetector(ABC):
    """What the four have in common: nothing to learn, label = argmax of the logits."""

    name: str
    needs_logits = True
    _num_classes: int | None = None

    def fit(self, train: Outputs, num_classes: int) -> Self:
        self._num_classes = num_classes
        return self

    def score(self, test: Outputs) -> Scores:
        logits = test.logits
        if logits is None:
            raise UserError(
                f"detector '{self.name}' needs logits, and this network has no classifier; use knn or nno"
            )
        if self._num_classes is not None and logits.shape[1] != self._num_classes:
            raise UserError(f"logits of {logits.shape[1]} classes, but {self._num_classes} are known")
        require_finite(logits, "logits")
        return Scores(self._of(logits), logits.argmax(dim=1))

    @abstractmethod
    def _of(self, logits: Tensor) -> Tensor:
        """The score of logits (N, C): (N,)."""


class MSP(_LogitDetector):
    """Maximum softmax probability."""

    name = "msp"

    def _of(self, logits: Tensor) -> Tensor:
        return msp(logits)


class Entropy(_LogitDetector):
    """Minus the entropy of the softmax."""

    name = "entropy"

    def _of(self, logits: Tensor) -> Tensor:
        return entropy(logits)


class MLS(_LogitDetector):
    """Maximum logit."""

    name = "mls"

    def _of(self, logits: Tensor) -> Tensor:
        return mls(logits)


class Energy(_LogitDetector):
    """Minus the free energy of the logits at ``temperature``."""

    name = "energy"

    def __init__(self, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise UserError(f"energy needs a positive temperature, not {temperature}")
        self.temperature = temperature

    def _of(self, logits: Tensor) -> Tensor:
        return energy(logits, self.temperature)
