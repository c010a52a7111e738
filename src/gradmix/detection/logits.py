"""Scores from a classifier's logits (N, C). Each returns (N,) float64, higher = more likely known.

Computed in float64: in float32 the confident half of a test set would tie at a softmax of exactly 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .detector import FormulaDetector, require_positive
from .outputs import clamp_to_finite


def msp(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the maximum softmax probability: max_c p_c, p = softmax(l / T) (Hendrycks & Gimpel 2017).

    A high T compares the largest logit with the mean one: p = (1 + (max l − mean l) / T) / C to first order.

    >>> msp(torch.zeros(1, 4))
    tensor([0.2500], dtype=torch.float64)
    """
    return torch.softmax(logits.double() / temperature, dim=1).amax(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """Return minus the entropy of the softmax: Σ_c p_c log p_c, so that certain is higher.

    >>> entropy(torch.zeros(1, 4)).exp()
    tensor([0.2500], dtype=torch.float64)
    """
    p = torch.softmax(logits.double(), dim=1)
    return torch.xlogy(p, p).sum(dim=1)


def mls(logits: Tensor) -> Tensor:
    """Return the maximum logit score: max_c l_c (Vaze et al. 2022).

    >>> mls(torch.tensor([[1.0, 5.0, -2.0]]))
    tensor([5.], dtype=torch.float64)
    """
    return clamp_to_finite(logits.double().amax(dim=1))


def energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return minus the free energy: T · log Σ_c exp(l_c / T) (Liu et al. 2020).

    >>> energy(torch.zeros(1, 4)).exp()
    tensor([4.], dtype=torch.float64)
    """
    return clamp_to_finite(temperature * torch.logsumexp(logits.double() / temperature, dim=1))


class LogitDetector(FormulaDetector):
    """What the four have in common: nothing to learn, label = argmax of the logits."""

    needs = frozenset({"logits"})

    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        return self.score_logits(parts["logits"])

    @abstractmethod
    def score_logits(self, logits: Tensor) -> Tensor:
        """Return the score (N,) of logits (N, C)."""


class MSP(LogitDetector):
    """Maximum softmax probability of the logits at ``temperature``."""

    name = "msp"

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = require_positive(self.name, temperature)

    def score_logits(self, logits: Tensor) -> Tensor:
        return msp(logits, self.temperature)

    def settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature}


class Entropy(LogitDetector):
    """Minus the entropy of the softmax."""

    name = "entropy"

    def score_logits(self, logits: Tensor) -> Tensor:
        return entropy(logits)


class MLS(LogitDetector):
    """Maximum logit."""

    name = "mls"

    def score_logits(self, logits: Tensor) -> Tensor:
        return mls(logits)


class Energy(LogitDetector):
    """Minus the free energy of the logits at ``temperature``."""

    name = "energy"

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = require_positive(self.name, temperature)

    def score_logits(self, logits: Tensor) -> Tensor:
        return energy(logits, self.temperature)

    def settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature}
