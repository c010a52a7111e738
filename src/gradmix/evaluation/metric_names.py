"""The metrics' names for people, in the order in which tables show them."""

from __future__ import annotations

METRIC_NAMES = {
    "closed_set_accuracy": "Closed-set accuracy",
    "auroc": "AUROC",
    "tnr_at_tpr95": "TNR@95",
    "fpr_at_95_known": "FPR@95 known",
    "fpr_at_95_unknown": "FPR@95 unknown",
    "oscr": "OSCR (= OpenAUC)",
    "aupr_in": "AUPR in",
    "aupr_out": "AUPR out",
    "dtacc": "DTACC",
    "detection_accuracy": "Detection accuracy",
    "macro_f1": "Macro-F1",
}
# Two things are called FPR@95; on one pair of sets they can be far apart.
FPR_NOTE = (
    "FPR@95 known: unknown accepted where 95 % of the known are. "
    "FPR@95 unknown: known rejected where 95 % of the unknown are caught."
)
# Of several unknown sets, a table each: one column per set, and their mean. Scores without a threshold have
# no macro-F1.
COMPARED_METRICS = ("auroc", "fpr_at_95_known", "fpr_at_95_unknown", "macro_f1")
