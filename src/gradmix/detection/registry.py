"""Detectors by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UserError, choose
from .detector import Detector
from .ensemble import Ensemble
from .fdbd import FDBD
from .g_openmax import GOpenMax
from .gen import GEN
from .klm import KLMatching
from .knn import KNN, SCORE_NORMALIZATIONS
from .knn_distance import KNNDistance
from .logits import MLS, MSP, Energy, Entropy
from .mcm import GLMCM, MCM, CLIPNAgreeing, CLIPNCompeting, NegPrompt
from .nci import NCI
from .neco import NECO
from .nno import NNO
from .openmax import OpenMax
from .placeholder import OSRCI, Placeholder
from .reconstruction import Reconstruction
from .relation import NNGuide, Relation
from .rmds import RMDS
from .rotation import RotPred
from .shaping import ASH, DICE, VRA, ReAct, Scale
from .she import SHE
from .temperature import Temperature
from .vim import Residual, ViM

DETECTORS: dict[str, type[Detector]] = {
    "knn": KNN,
    "nno": NNO,
    "msp": MSP,
    "entropy": Entropy,
    "mls": MLS,
    "energy": Energy,
    "openmax": OpenMax,
    "g-openmax": GOpenMax,
    "osrci": OSRCI,
    "placeholder": Placeholder,
    "reconstruction": Reconstruction,
    "rotpred": RotPred,
    "mcm": MCM,
    "gl-mcm": GLMCM,
    "negprompt": NegPrompt,
    "clipn-ctw": CLIPNCompeting,
    "clipn-atd": CLIPNAgreeing,
    "gen": GEN,
    "temperature": Temperature,
    "klm": KLMatching,
    "knn_distance": KNNDistance,
    "rmds": RMDS,
    "she": SHE,
    "vim": ViM,
    "residual": Residual,
    "neco": NECO,
    "fdbd": FDBD,
    "nci": NCI,
    "nnguide": NNGuide,
    "relation": Relation,
    "react": ReAct,
    "vra": VRA,
    "ash": ASH,
    "scale": Scale,
    "dice": DICE,
}

# Names that other programs use; they are read, and never written.
ALIASES = {"mds": "nno", "mahalanobis": "nno", "maxlogit": "mls", "ebo": "energy"}

AUTO = "auto"  # the method's own


def detector_names() -> list[str]:
    """Return every name that :func:`make_detector` knows: ``knn:sum`` is knn with that normalization."""
    return [*DETECTORS, *(f"{KNN.name}:{how}" for how in SCORE_NORMALIZATIONS)]


def resolve_name(name: str) -> str:
    """Return the name under which a score is known, in rows and in files; raise if there is none.

    >>> resolve_name("mahalanobis"), resolve_name("knn:sum + maxlogit")
    ('nno', 'knn:sum+mls')
    """
    known = [*detector_names(), *ALIASES]
    parts = [choose("detector", part.strip(), known) for part in name.split("+")]
    return "+".join(ALIASES.get(part, part) for part in parts)


def make_detector(name: str, **settings: Any) -> Detector:
    """Make a new detector by name, with settings of its own.

    >>> make_detector("knn", k=10).name
    'knn'
    >>> make_detector("mls", k=10)
    Traceback (most recent call last):
    ...
    gradmix.errors.UserError: detector 'mls' has no setting 'k' (it has none)
    >>> make_detector("knn+mls").name
    'knn+mls'
    """
    name = resolve_name(name)
    if "+" in name:
        if settings:
            raise UserError(
                f"detector '{name}' has no setting '{next(iter(settings))}': its parts have theirs"
            )
        return make_detector_with(name, lambda part: {})
    kind, _, how = name.partition(":")
    if how:
        settings["normalize"] = how
    make = DETECTORS[kind]
    allowed = list(inspect.signature(make).parameters)
    for setting in settings:
        if setting not in allowed:
            has = f"it has: {', '.join(allowed)}" if allowed else "it has none"
            raise UserError(f"detector '{name}' has no setting '{setting}' ({has})")
    return make(**settings)


def make_detector_with(name: str, settings_of: Callable[[str], Mapping[str, Any]]) -> Detector:
    """Make a detector, or each part of a sum of them, with the settings of its name."""
    name = resolve_name(name)
    parts = name.split("+")
    members = [make_detector(part, **settings_of(part)) for part in parts]
    return members[0] if len(parts) == 1 else Ensemble(parts, members)
