"""Every score that arrays allow, from one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..errors import UserError
from .arrays import read_outputs
from .detector import Detector
from .outputs import HeadWeights, Outputs
from .registry import DETECTORS, make_detector, resolve_name

Given = Outputs | Mapping[str, Any]


def score_all(
    train: Given,
    test: Given,
    *,
    held_out: Given | None = None,
    head: Any = None,
    detectors: Sequence[str] | None = None,
) -> dict[str, Tensor]:
    """Return the scores (N,) of the test images by name of the detector; higher is more likely known.

    ``train``, ``test`` and ``held_out`` are Outputs, or dicts of arrays (numpy or torch, one row per image):
    ``features``, ``labels``, ``logits``, ``penultimate``. ``head`` is (W, b), from the penultimate activation
    to the logits. ``detectors``: those asked for, refused where they do not apply; by default all that do.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(90) % 3
    >>> train = {"penultimate": 3 * np.eye(3)[labels] + rng.random((90, 3)), "labels": labels}
    >>> test = {"penultimate": np.array([[3.5, 0.5, 0.5], [1.5, 1.5, 1.5]])}  # of class 0; of none
    >>> scores = score_all(train, test, head=(np.eye(3), np.zeros(3)))
    >>> len(scores), scores["mls"].tolist()
    (25, [3.5, 1.5])
    """
    outputs = {"train": _read(train, head), "test": _read(test, head)}
    held = None if held_out is None else _read(held_out, head)
    classes = int(outputs["train"].labels.max()) + 1 if len(outputs["train"].labels) else 0
    found: dict[str, Tensor] = {}
    for name in [resolve_name(name) for name in detectors or DETECTORS]:
        detector = make_detector(name)
        if detectors is None and not _applies(detector, outputs["train"], outputs["test"], held):
            continue
        detector.fit(outputs["train"], classes, held_out=held)
        found[name] = detector.score(outputs["test"]).score
    if not found:
        raise UserError("no detector applies to these arrays; give features and labels, or logits")
    return found


def _applies(detector: Detector, train: Outputs, test: Outputs, held_out: Outputs | None) -> bool:
    parts = test.parts & train.parts if detector.learns else test.parts
    if detector.needs_held_out:
        return held_out is not None and detector.needs <= parts & held_out.parts
    return detector.needs <= parts


def _read(given: Given, head: Any) -> Outputs:
    if not isinstance(given, Outputs):
        return read_outputs(None, {"head": head, **given})
    if head is None or given.head is not None:
        return given
    return replace(given, head=head if isinstance(head, HeadWeights) else HeadWeights(*head))
