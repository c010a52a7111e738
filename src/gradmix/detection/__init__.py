"""Is this image of a known class, and of which: scores on features or logits, and the threshold."""

from .knn import KNN, Neighbours, knn_similarity
from .logits import MLS, MSP, Energy, Entropy, energy, entropy, mls, msp
from .nno import NNO
from .normalisation import NORMALIZATIONS, known_score
from .outputs import Detector, Outputs, Scores
from .registry import DETECTORS, make_detector
from .threshold import ClassThreshold, Threshold, calibrate, conformal_threshold

__all__ = [
    "DETECTORS",
    "KNN",
    "MLS",
    "MSP",
    "NNO",
    "NORMALIZATIONS",
    "ClassThreshold",
    "Detector",
    "Energy",
    "Entropy",
    "Neighbours",
    "Outputs",
    "Scores",
    "Threshold",
    "calibrate",
    "conformal_threshold",
    "energy",
    "entropy",
    "knn_similarity",
    "known_score",
    "make_detector",
    "mls",
    "msp",
]
