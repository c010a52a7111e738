"""Is this image of a known class, and of which: scores on features or logits, and the threshold."""

from .decision import UNKNOWN_NAME, Decision, Predictions, add_bias
from .formula import FormulaDetector
from .knn import KNN, SCORE_NORMALIZATIONS, Neighbours, knn_similarity, known_score
from .logits import MLS, MSP, Energy, Entropy, LogitDetector, energy, entropy, mls, msp
from .mcm import GLMCM, MCM, CLIPNAgreeing, CLIPNCompeting, NegPrompt
from .nno import NNO
from .openmax import OpenMax
from .outputs import Detector, Outputs, Scores
from .placeholder import OSRCI, Placeholder
from .reconstruction import Reconstruction
from .registry import AUTO, DETECTORS, detector_names, load_detector, make_detector
from .rotation import RotPred
from .threshold import ClassThreshold, Threshold, calibrate, conformal_threshold

__all__ = [
    "AUTO",
    "DETECTORS",
    "GLMCM",
    "KNN",
    "MCM",
    "MLS",
    "MSP",
    "NNO",
    "OSRCI",
    "SCORE_NORMALIZATIONS",
    "UNKNOWN_NAME",
    "CLIPNAgreeing",
    "CLIPNCompeting",
    "ClassThreshold",
    "Decision",
    "Detector",
    "Energy",
    "Entropy",
    "FormulaDetector",
    "LogitDetector",
    "NegPrompt",
    "Neighbours",
    "OpenMax",
    "Outputs",
    "Placeholder",
    "Predictions",
    "Reconstruction",
    "RotPred",
    "Scores",
    "Threshold",
    "add_bias",
    "calibrate",
    "conformal_threshold",
    "detector_names",
    "energy",
    "entropy",
    "knn_similarity",
    "known_score",
    "load_detector",
    "make_detector",
    "mls",
    "msp",
]
