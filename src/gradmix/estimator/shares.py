"""How an answer is shared out among the classes and unknown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..detection import KNN, Outputs
from ..recognition import Recognizer

_LARGEST = 50.0  # of an exponent: beyond, nothing is left of the others
_LEAD = 1e-9  # by so much the answer leads, where two are equal: else its place in the order would decide


def log_weights(recognizer: Recognizer, outputs: Outputs) -> NDArray[np.float64]:
    """Return (N, C + 1) logarithms of weights: of the classes, in the recognizer's order, and of unknown.

    (d_c − max d) / T and (t − s) / σ, with class scores d (similarities, or logits where they decide), score
    s, threshold t, σ the standard deviation of known scores, and T = 0.1·k for similarities and 1 for logits.
    The largest is always that of the answer: a score at the threshold weighs unknown like the nearest class.
    """
    d, found = recognizer.decision.class_scores(outputs), recognizer.decision.decide(outputs)
    detector = recognizer.decision.detector
    scale = detector.k * detector.temperature if isinstance(detector, KNN) else 1.0
    classes = (d - d.amax(1, keepdim=True)) / scale
    margin = found.score - found.threshold
    unknown = (-margin / max(recognizer.threshold.spread, 1e-9)).clamp(max=_LARGEST)
    weights = np.column_stack([classes.numpy(), unknown.numpy()]).astype(np.float64)
    return _let_answer_lead(weights, found.label)


def shares_of(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights, given as logarithms (N, C + 1), as shares that sum to 1."""
    shares = np.exp(weights - weights.max(1, keepdims=True))
    return np.asarray(shares / shares.sum(1, keepdims=True))


def _let_answer_lead(weights: NDArray[np.float64], label: Tensor) -> NDArray[np.float64]:
    """Raise the answer's weight above all others where it is equal to one but for rounding."""
    rows, answer = np.arange(len(weights)), label.numpy()  # -1 is the last column, unknown
    others = weights.copy()
    others[rows, answer] = -np.inf
    weights[rows, answer] = np.maximum(weights[rows, answer], others.max(1) + _LEAD)
    return weights
