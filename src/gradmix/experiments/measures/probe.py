"""How well a linear classifier does on the frozen encoder (the SSL figure and Table 6)."""

from __future__ import annotations

from ...evaluation import ProbeResult, encoder_features, linear_probe
from .measure_input import Measured, MeasureInput


def measure_probe(inputs: MeasureInput) -> Measured:
    """Return top-1 and top-5 accuracy on the test images."""
    result = _run_probe(inputs, inputs.probe)
    return Measured({"top1": result.top1, "top5": result.top5, "train_top1": result.train_top1})


def measure_probe_top1(inputs: MeasureInput) -> float:
    return _run_probe(inputs, "fast").top1


def _run_probe(inputs: MeasureInput, recipe: str) -> ProbeResult:
    model = inputs.recognizer
    train, test = (
        encoder_features(model.network, model.normalizer, model.convert(images))
        for images in (inputs.train, inputs.test)
    )
    return linear_probe(train, inputs.train.labels, test, inputs.test.labels, recipe)
