"""OpenSetClassifier, for scikit-learn and notebooks: the whole way from images to answers."""

from .classifier import OpenSetClassifier, unknown_label
from .display import ExplanationList, PredictionTable, ShownExplanation

__all__ = ["ExplanationList", "OpenSetClassifier", "PredictionTable", "ShownExplanation", "unknown_label"]
