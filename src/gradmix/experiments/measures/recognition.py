"""Known against unknown, known classes by name, and foreign data sets."""

from __future__ import annotations

from ...evaluation import (
    applicable_detectors,
    aupr_in,
    aupr_out,
    auroc,
    closed_set_accuracy,
    detection_accuracy,
    dtacc,
    evaluate_open_set,
    tnr_at_tpr,
)
from ..images import take_per_class
from .measure_input import Measured, MeasureInput

_OTHERS = ("knn", "knn:sum", "knn:shifted", "knn:none", "msp", "mls")
_OF_THE_THRESHOLD = ("macro_f1", "known_accepted", "unknown_rejected")  # which experiments do not set


def measure_open_set(inputs: MeasureInput) -> Measured:
    """Return all open-set metrics by the model's own score, and the AUROC by every score without training."""
    possible = applicable_detectors(inputs.recognizer)
    others = [name for name in _OTHERS if name.startswith("knn") or name in possible]
    result = evaluate_open_set(inputs.recognizer, inputs.test, inputs.require_unknown(), inputs.train, others)
    metrics = {name: value for name, value in result.main.items() if name not in _OF_THE_THRESHOLD}
    return Measured(metrics | {f"auroc/{name}": found["auroc"] for name, found in result.metrics.items()})


def measure_auroc(inputs: MeasureInput) -> float:
    of_known, of_unknown = inputs.scores(inputs.test, inputs.require_unknown())
    return auroc(of_known.score, of_unknown.score)


def measure_closed_set(inputs: MeasureInput) -> Measured:
    """Return the accuracy on the test images of the known classes."""
    return Measured({"accuracy": measure_accuracy(inputs)})


def measure_accuracy(inputs: MeasureInput) -> float:
    (scores,) = inputs.scores(inputs.test)
    return closed_set_accuracy(inputs.test.labels, scores.label)


def measure_out_of_distribution(inputs: MeasureInput) -> Measured:
    """Return TNR at TPR 95 %, AUROC, DTACC, AUIN and AUOUT per foreign data set, and the accuracy."""
    wanted = inputs.recognizer.image_format
    foreign = [
        take_per_class(inputs.images.load_foreign(name, wanted.size, wanted.channels), inputs.test_per_class)
        for name in inputs.out
    ]
    of_known, *of_foreign = inputs.scores(inputs.test, *foreign)
    metrics = {"accuracy": closed_set_accuracy(inputs.test.labels, of_known.label)}
    for name, scores in zip(inputs.out, of_foreign, strict=True):
        pair = (of_known.score, scores.score)
        metrics |= {
            f"{name}/tnr": tnr_at_tpr(*pair),
            f"{name}/auroc": auroc(*pair),
            f"{name}/dtacc": dtacc(*pair),
            f"{name}/auin": aupr_in(*pair),
            f"{name}/auout": aupr_out(*pair),
            f"{name}/detection_accuracy": detection_accuracy(*pair),
        }
    return Measured(metrics)
