"""How diverse the features are, and how well three simple scores tell known from unknown (Table 1)."""

from __future__ import annotations

from ...evaluation import evaluate_open_set, intrinsic_dimension
from .subject import Measured, Subject


def diversity(subject: Subject) -> Measured:
    """Intrinsic dimension per class and pooled; AUROC by NNO and, with a classifier, by entropy and MSP."""
    result = evaluate_open_set(
        subject.recognizer,
        subject.test,
        subject.needs_unknown(),
        subject.train,
        ("nno", "entropy", "msp"),
    )
    features = subject.recognizer.outputs(subject.test).features
    metrics = {
        "id": intrinsic_dimension(features, subject.test.labels),
        "id/pooled": intrinsic_dimension(features, subject.test.labels, per_class=False),
        "closed_set_accuracy": result.main["closed_set_accuracy"],
    }
    return Measured(metrics | {name: values["auroc"] for name, values in result.metrics.items()})
