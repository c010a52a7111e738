"""The trained model in use: features, index, threshold, and one file that holds them all."""

from .build import build_recognizer, hold_out
from .extract import extract
from .fit import fit
from .model_file import load, save
from .recognizer import Predictions, Recognizer

__all__ = [
    "Predictions",
    "Recognizer",
    "build_recognizer",
    "extract",
    "fit",
    "hold_out",
    "load",
    "save",
]
