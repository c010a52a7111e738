"""Is this image of a known class, and of which: scores on features or logits, and the threshold."""

from .arrays import outputs_of
from .decision import UNKNOWN_NAME, Decision, Predictions, add_bias, load_detector
from .detector import Detector, FormulaDetector
from .ensemble import Ensemble
from .false_discoveries import control_false_discoveries
from .fdbd import FDBD
from .g_openmax import GOpenMax
from .gen import GEN
from .klm import KLMatching
from .knn import KNN, SCORE_NORMALIZATIONS, Neighbours, knn_similarity, known_score
from .knn_distance import KNNDistance
from .learned import LearnedDetector
from .logits import MLS, MSP, Energy, Entropy, LogitDetector, energy, entropy, mls, msp
from .mcm import GLMCM, MCM, CLIPNAgreeing, CLIPNCompeting, NegPrompt
from .nci import NCI
from .neco import NECO
from .nno import NNO
from .openmax import OpenMax
from .outputs import HeadWeights, Outputs, Scores
from .placeholder import OSRCI, Placeholder
from .reconstruction import Reconstruction
from .registry import (
    ALIASES,
    AUTO,
    DETECTORS,
    detector_names,
    make_detector,
    make_detector_with,
    resolve_name,
)
from .relation import NNGuide, Relation
from .rmds import RMDS
from .rotation import RotPred
from .score_all import score_all
from .shaping import ASH, DICE, VRA, ReAct, Scale
from .she import SHE
from .temperature import Temperature
from .threshold import (
    ClassThreshold,
    EnrolledScores,
    KnownScores,
    Threshold,
    calibrate,
    conformal_p,
    conformal_threshold,
)
from .vim import Residual, ViM
from .wording import describe_answer, describe_p

__all__ = [
    "ALIASES",
    "ASH",
    "AUTO",
    "DETECTORS",
    "DICE",
    "FDBD",
    "GEN",
    "GLMCM",
    "KNN",
    "MCM",
    "MLS",
    "MSP",
    "NCI",
    "NECO",
    "NNO",
    "OSRCI",
    "RMDS",
    "SCORE_NORMALIZATIONS",
    "SHE",
    "UNKNOWN_NAME",
    "VRA",
    "CLIPNAgreeing",
    "CLIPNCompeting",
    "ClassThreshold",
    "Decision",
    "Detector",
    "Energy",
    "EnrolledScores",
    "Ensemble",
    "Entropy",
    "FormulaDetector",
    "GOpenMax",
    "HeadWeights",
    "KLMatching",
    "KNNDistance",
    "KnownScores",
    "LearnedDetector",
    "LogitDetector",
    "NNGuide",
    "NegPrompt",
    "Neighbours",
    "OpenMax",
    "Outputs",
    "Placeholder",
    "Predictions",
    "ReAct",
    "Reconstruction",
    "Relation",
    "Residual",
    "RotPred",
    "Scale",
    "Scores",
    "Temperature",
    "Threshold",
    "ViM",
    "add_bias",
    "calibrate",
    "conformal_p",
    "conformal_threshold",
    "control_false_discoveries",
    "describe_answer",
    "describe_p",
    "detector_names",
    "energy",
    "entropy",
    "knn_similarity",
    "known_score",
    "load_detector",
    "make_detector",
    "make_detector_with",
    "mls",
    "msp",
    "outputs_of",
    "resolve_name",
    "score_all",
]
