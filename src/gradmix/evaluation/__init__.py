"""How good it is: metrics, and the open-set evaluation that uses them."""

from .intrinsic import intrinsic_dimension, two_nn
from .linear_probe import ProbeResult, encoder_features, linear_probe
from .metrics import (
    aupr_in,
    aupr_out,
    auroc,
    closed_set_accuracy,
    detection_accuracy,
    dtacc,
    macro_f1_open,
    open_set_metrics,
    oscr,
    roc_points,
    tnr_at_tpr,
)
from .open_set import OpenSetResult, applicable_detectors, evaluate_open_set

__all__ = [
    "OpenSetResult",
    "ProbeResult",
    "applicable_detectors",
    "aupr_in",
    "aupr_out",
    "auroc",
    "closed_set_accuracy",
    "detection_accuracy",
    "dtacc",
    "encoder_features",
    "evaluate_open_set",
    "intrinsic_dimension",
    "linear_probe",
    "macro_f1_open",
    "open_set_metrics",
    "oscr",
    "roc_points",
    "tnr_at_tpr",
    "two_nn",
]
