"""How good it is: metrics, and the open-set evaluation that uses them."""

from .intrinsic import intrinsic_dimension, two_nn
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
from .open_set import OpenSetResult, evaluate_open_set

__all__ = [
    "OpenSetResult",
    "aupr_in",
    "aupr_out",
    "auroc",
    "closed_set_accuracy",
    "detection_accuracy",
    "dtacc",
    "evaluate_open_set",
    "intrinsic_dimension",
    "macro_f1_open",
    "open_set_metrics",
    "oscr",
    "roc_points",
    "tnr_at_tpr",
    "two_nn",
]
