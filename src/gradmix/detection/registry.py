"""Detectors by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import UserError, choose
from .knn import KNN
from .logits import MLS, MSP, Energy, Entropy
from .nno import NNO
from .outputs import Detector

DETECTORS: dict[str, Callable[..., Detector]] = {
    "knn": KNN,
    "nno": NNO,
    "msp": MSP,
    "entropy": Entropy,
    "mls": MLS,
    "energy": Energy,
}


def make_detector(name: str, **settings: Any) -> Detector:
    """A new detector by name, with settings of its own.

    >>> make_detector("knn", k=10).name
    'knn'
    >>> make_detector("msp", k=10)
    Traceback (most recent call last):
    ...
    gradmix.errors.UserError: detector 'msp' has no setting 'k' (it has none)
    """
    make = DETECTORS[choose("detector", name, DETECTORS)]
    allowed = list(inspect.signature(make).parameters)
    for setting in settings:
        if setting not in allowed:
            has = f"it has: {', '.join(allowed)}" if allowed else "it has none"
            raise UserError(f"detector '{name}' has no setting '{setting}' ({has})")
    return make(**settings)
