"""The whole way on real images: train on a protocol, evaluate, and get numbers that mean something."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gradmix.cli import main

DATA = os.environ.get("GRADMIX_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="GRADMIX_DATA is not set: no real data sets here")


def trained_and_evaluated(run: Path, protocol: str, *more: str) -> dict[str, dict[str, float]]:
    command = ["train", "--protocol", protocol, "--recipe", f"cpu/{protocol}", "--out", str(run), *more]
    assert main(command) == 0
    assert main(["evaluate", str(run)]) == 0
    assert (run / "report.html").stat().st_size > 10_000
    metrics: dict[str, dict[str, float]] = json.loads((run / "evaluation.json").read_text())["metrics"]
    return metrics


@needs_data
@pytest.mark.slow
def test_a_minute_of_mnist_tells_known_from_unknown(tmp_path: Path) -> None:
    metrics = trained_and_evaluated(
        tmp_path / "run", "mnist", "--limit-per-class", "300", "--max-steps", "60", "--batch-size", "128"
    )
    assert metrics["knn"]["closed_set_accuracy"] > 0.95
    assert metrics["knn"]["auroc"] > 0.90


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["svhn", "cifar10", "cifar+10", "cifar+50", "tinyimagenet"])
def test_every_protocol_trains_and_evaluates_on_real_images(tmp_path: Path, protocol: str) -> None:
    few = ("--limit-per-class", "20", "--max-steps", "2", "--batch-size", "32")
    metrics = trained_and_evaluated(tmp_path / "run", protocol, *few)
    by_neighbours = {"knn", "knn:shifted", "knn:sum", "knn:softmax", "knn_distance"}
    assert set(metrics) == by_neighbours | {"nno", "rmds", "neco"}  # there is no classifier
    assert all(0 <= value <= 1 for values in metrics.values() for value in values.values())
