"""Detectors by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..errors import UserError, choose
from .knn import KNN, SCORE_NORMALIZATIONS
from .logits import MLS, MSP, Energy, Entropy
from .mcm import GLMCM, MCM, CLIPNAgreeing, CLIPNCompeting, NegPrompt
from .nno import NNO
from .openmax import OpenMax
from .outputs import Detector
from .placeholder import OSRCI, Placeholder
from .reconstruction import Reconstruction
from .rotation import RotPred

DETECTORS: dict[str, type[Detector]] = {
    "knn": KNN,
    "nno": NNO,
    "msp": MSP,
    "entropy": Entropy,
    "mls": MLS,
    "energy": Energy,
    "openmax": OpenMax,
    "osrci": OSRCI,
    "placeholder": Placeholder,
    "reconstruction": Reconstruction,
    "rotpred": RotPred,
    "mcm": MCM,
    "gl-mcm": GLMCM,
    "negprompt": NegPrompt,
    "clipn-ctw": CLIPNCompeting,
    "clipn-atd": CLIPNAgreeing,
}


AUTO = "auto"  # the method's own


def detector_names() -> list[str]:
    """Return every name that :func:`make_detector` knows: ``knn:sum`` is knn with that normalization."""
    return [*DETECTORS, *(f"{KNN.name}:{how}" for how in SCORE_NORMALIZATIONS)]


def make_detector(name: str, **settings: Any) -> Detector:
    """Make a new detector by name, with settings of its own.

    >>> make_detector("knn", k=10).name
    'knn'
    >>> make_detector("mls", k=10)
    Traceback (most recent call last):
    ...
    gradmix.errors.UserError: detector 'mls' has no setting 'k' (it has none)
    """
    kind, _, how = choose("detector", name, detector_names()).partition(":")
    if how:
        settings["normalize"] = how
    make = DETECTORS[kind]
    allowed = list(inspect.signature(make).parameters)
    for setting in settings:
        if setting not in allowed:
            has = f"it has: {', '.join(allowed)}" if allowed else "it has none"
            raise UserError(f"detector '{name}' has no setting '{setting}' ({has})")
    return make(**settings)


def load_detector(name: str, settings: Mapping[str, Any], state: Mapping[str, Tensor]) -> Detector:
    """Return the detector of that name that ``state()`` and ``settings()`` describe."""
    return DETECTORS[choose("detector", name, DETECTORS)].from_state(state, settings)
