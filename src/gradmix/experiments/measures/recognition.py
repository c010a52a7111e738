"""Known against unknown, known classes by name, and foreign data sets."""

from __future__ import annotations

from ...evaluation import (
    aupr_in,
    aupr_out,
    auroc,
    closed_set_accuracy,
    detection_accuracy,
    dtacc,
    evaluate_open_set,
    tnr_at_tpr,
)
from ..images import per_class
from .subject import Measured, Subject

_OF_THE_THRESHOLD = ("macro_f1", "known_accepted", "unknown_rejected")  # which experiments do not set


def open_set(subject: Subject) -> Measured:
    """All open-set metrics by the model's own score, and the AUROC by every other that needs no training."""
    others = ("knn:sum", "knn:shifted", "knn:none", "msp", "mls")
    result = evaluate_open_set(
        subject.recognizer, subject.test, subject.needs_unknown(), subject.train, others
    )
    own = result.metrics.get("msp", result.main)  # as in Subject.scores
    metrics = {name: value for name, value in own.items() if name not in _OF_THE_THRESHOLD}
    return Measured(metrics | {f"auroc/{name}": found["auroc"] for name, found in result.metrics.items()})


def open_set_auroc(subject: Subject) -> float:
    of_known, of_unknown = subject.scores(subject.test, subject.needs_unknown())
    return auroc(of_known.score, of_unknown.score)


def closed_set(subject: Subject) -> Measured:
    """Accuracy on the test images of the known classes."""
    return Measured({"accuracy": accuracy(subject)})


def accuracy(subject: Subject) -> float:
    (scores,) = subject.scores(subject.test)
    return closed_set_accuracy(subject.test.labels, scores.label)


def out_of_distribution(subject: Subject) -> Measured:
    """TNR at TPR 95 %, AUROC, DTACC, AUIN and AUOUT of each foreign data set; and closed-set accuracy."""
    views = subject.recognizer.recipe.views
    foreign = [
        per_class(subject.images.foreign(name, views.image_size, views.channels), subject.test_per_class)
        for name in subject.out
    ]
    of_known, *of_foreign = subject.scores(subject.test, *foreign)
    metrics = {"accuracy": closed_set_accuracy(subject.test.labels, of_known.label)}
    for name, scores in zip(subject.out, of_foreign, strict=True):
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
