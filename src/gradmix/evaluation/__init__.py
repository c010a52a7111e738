"""How good it is: metrics, and the open-set evaluation that uses them."""

from .answers import AnswerCounts, count_answers
from .full_spectrum import SEVERITY
from .intrinsic import intrinsic_dimension, two_nn
from .linear_probe import ProbeResult, encoder_features, linear_probe
from .metric_names import COMPARED_METRICS, FPR_NOTE, METRIC_NAMES
from .metrics import (
    aupr_in,
    aupr_out,
    auroc,
    closed_set_accuracy,
    detection_accuracy,
    dtacc,
    fpr_at_known,
    fpr_at_unknown,
    macro_f1_open,
    open_set_metrics,
    oscr,
    roc_points,
    threshold_at_known,
    tnr_at_tpr,
)
from .network import NetworkResult, evaluate_network
from .open_set import (
    OpenSetResult,
    applicable_detectors,
    evaluate_open_set,
    has_index,
    has_threshold,
    learning_detectors,
)

__all__ = [
    "COMPARED_METRICS",
    "FPR_NOTE",
    "METRIC_NAMES",
    "SEVERITY",
    "AnswerCounts",
    "NetworkResult",
    "OpenSetResult",
    "ProbeResult",
    "applicable_detectors",
    "aupr_in",
    "aupr_out",
    "auroc",
    "closed_set_accuracy",
    "count_answers",
    "detection_accuracy",
    "dtacc",
    "encoder_features",
    "evaluate_network",
    "evaluate_open_set",
    "fpr_at_known",
    "fpr_at_unknown",
    "has_index",
    "has_threshold",
    "intrinsic_dimension",
    "learning_detectors",
    "linear_probe",
    "macro_f1_open",
    "open_set_metrics",
    "oscr",
    "roc_points",
    "threshold_at_known",
    "tnr_at_tpr",
    "two_nn",
]
