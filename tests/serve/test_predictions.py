"""The same predictions as ``Recognizer.predict``, split into requests."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from gradmix.detection import Threshold
from gradmix.recognition import Recognizer, load
from gradmix.serve.live_model import predict_batch
from tests.training.tiny import tiny_images


def check_same(recognizer: Recognizer) -> None:
    images = tiny_images(6, ("bar", "disc", "square", "cross"), seed=7)
    predictions, expected = predict_batch(recognizer, images.images[:], 5), recognizer.predict(images)
    assert torch.equal(predictions.found.label, expected.label)
    assert torch.equal(predictions.found.nearest, expected.nearest)
    assert torch.equal(predictions.found.score, expected.score)
    rows = predictions.rows()
    assert [row["label"] for row in rows] == expected.names()
    assert [row["known"] for row in rows] == (expected.label >= 0).tolist()
    assert all(row["classes"][0]["name"] == row["nearest"] for row in rows)
    assert all(-1 <= c["similarity"] <= 1 for row in rows for c in row["classes"])
    assert predictions.count_known() == int((expected.label >= 0).sum())
    part = predictions.part(3, 8)
    assert (part.rows(), part.model) == (rows[3:8], 5)


def test_as_predicted(trained_model: Path) -> None:
    recognizer = load(trained_model)
    check_same(recognizer)
    check_same(recognizer.recalibrate(per_class=True))
    check_same(recognizer.enroll("cross", tiny_images(5, ("cross",), 3)))


def test_explained_as_predicted(trained_model: Path) -> None:
    recognizer = load(trained_model).enroll("cross", tiny_images(5, ("cross",), 3))
    images = tiny_images(2, ("bar", "cross"), seed=7)
    told = recognizer.explain(images)
    rows = predict_batch(recognizer, images.images[:]).rows()
    assert [row["label"] for row in rows] == [e.label for e in told]
    assert [[c["name"] for c in row["classes"]] for row in rows] == [
        [c.name for c in e.classes] for e in told
    ]


def test_a_model_that_rejects_nothing(trained_model: Path) -> None:
    recognizer = load(trained_model).with_threshold(Threshold(-math.inf, 0.05, 3, guaranteed=False))
    rows = predict_batch(recognizer, tiny_images(1).images[:]).rows()
    assert [row["threshold"] for row in rows] == [None] * 3
    assert all(row["known"] for row in rows)
