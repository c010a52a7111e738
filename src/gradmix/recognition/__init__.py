"""The trained model in use: features, decision, evidence, and one file that holds them all.

Imported when first used, so that opening a model and naming an image does not import what trains one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..detection import Predictions as Predictions
    from .build import build_recognizer as build_recognizer
    from .build import fit as fit
    from .build import fit_distributed as fit_distributed
    from .build import hold_out as hold_out
    from .discover import Discovery as Discovery
    from .discover import Group as Group
    from .explain import ClassEvidence as ClassEvidence
    from .explain import Explanation as Explanation
    from .explain import Neighbour as Neighbour
    from .features import cached_extract as cached_extract
    from .features import extract as extract
    from .held_out import HeldOutSummary as HeldOutSummary
    from .held_out import summarize_held_out as summarize_held_out
    from .model_file import load as load
    from .model_file import save as save
    from .model_file import update_model as update_model
    from .recognizer import Recognizer as Recognizer
    from .trainable import Obstacle as Obstacle
    from .trainable import find_obstacles as find_obstacles
    from .trainable import refuse_untrainable as refuse_untrainable

_FILE_OF = {
    "ClassEvidence": "explain",
    "Discovery": "discover",
    "Explanation": "explain",
    "Group": "discover",
    "HeldOutSummary": "held_out",
    "Neighbour": "explain",
    "Obstacle": "trainable",
    "Predictions": "recognizer",
    "Recognizer": "recognizer",
    "build_recognizer": "build",
    "cached_extract": "features",
    "extract": "features",
    "find_obstacles": "trainable",
    "fit": "build",
    "fit_distributed": "build",
    "hold_out": "build",
    "load": "model_file",
    "refuse_untrainable": "trainable",
    "save": "model_file",
    "summarize_held_out": "held_out",
    "update_model": "model_file",
}

__all__ = [*_FILE_OF]


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_FILE_OF[name]}", __name__), name)
