"""How diverse the features are, and how well three simple scores tell known from unknown (Table 1)."""

from __future__ import annotations

from ...evaluation import applicable_detectors, evaluate_open_set, intrinsic_dimension
from .measure_input import Measured, MeasureInput


def measure_diversity(inputs: MeasureInput) -> Measured:
    """Return the intrinsic dimension, per class and pooled, and the AUROC by NNO, entropy and MSP.

    Entropy and MSP need a classifier, and are left out without one.
    """
    possible = applicable_detectors(inputs.recognizer)
    detectors = [name for name in ("nno", "entropy", "msp") if name in possible]
    result = evaluate_open_set(
        inputs.recognizer, inputs.test, inputs.require_unknown(), inputs.train, detectors
    )
    features = inputs.recognizer.outputs(inputs.test).features
    metrics = {
        "id": intrinsic_dimension(features, inputs.test.labels),
        "id/pooled": intrinsic_dimension(features, inputs.test.labels, per_class=False),
        "closed_set_accuracy": result.main["closed_set_accuracy"],
    }
    return Measured(metrics | {name: values["auroc"] for name, values in result.metrics.items()})
