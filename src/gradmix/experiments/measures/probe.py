"""How well a linear classifier does on the frozen encoder (the SSL figure and Table 6)."""

from __future__ import annotations

from ...evaluation import ProbeResult, encoder_features, linear_probe
from .subject import Measured, Subject


def probe(subject: Subject) -> Measured:
    """Top-1 and top-5 accuracy on the test images."""
    result = _probe(subject, subject.probe)
    return Measured({"top1": result.top1, "top5": result.top5, "train_top1": result.train_top1})


def probe_top1(subject: Subject) -> float:
    return _probe(subject, "fast").top1


def _probe(subject: Subject, recipe: str) -> ProbeResult:
    model = subject.recognizer
    train, test = (
        encoder_features(model.network, model.normalizer, model.fitted(images))
        for images in (subject.train, subject.test)
    )
    return linear_probe(train, subject.train.labels, test, subject.test.labels, recipe)
