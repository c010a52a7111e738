"""The trained model in use: features, index, threshold, and one file that holds them all."""

from .build import build_recognizer, hold_out
from .discover import Discovery, Group
from .explain import ClassEvidence, Explanation, Neighbour
from .extract import extract
from .feature_cache import cached_extract
from .fit import fit, fit_together
from .model_file import load, save
from .model_update import update_model
from .recognizer import Predictions, Recognizer

__all__ = [
    "ClassEvidence",
    "Discovery",
    "Explanation",
    "Group",
    "Neighbour",
    "Predictions",
    "Recognizer",
    "build_recognizer",
    "cached_extract",
    "extract",
    "fit",
    "fit_together",
    "hold_out",
    "load",
    "save",
    "update_model",
]
