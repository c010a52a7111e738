"""``evaluate`` twice runs the network once, unless ``--no-cache``; ``bench knn|extract`` print rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradmix.cli import main
from gradmix.recognition import extract, features


def test_evaluating_twice_runs_the_network_once(
    run: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked_at: list[int] = []

    def counting(network, normalizer, images, **more):
        looked_at.append(len(images))
        return extract(network, normalizer, images, **more)

    monkeypatch.setattr(features, "extract", counting)
    monkeypatch.setattr(features, "_SECONDS_WORTH_KEEPING", -1.0)
    words = ["evaluate", str(run), "--known", str(trained / "test"), "--unknown", str(trained / "others")]
    metrics, counts = [], []
    for more in ([], [], ["--no-cache"]):
        looked_at.clear()
        assert main([*words, *more]) == 0
        metrics.append(json.loads((run / "evaluation.json").read_text())["metrics"])
        counts.append(sum(looked_at))
    assert metrics[0] == metrics[1] == metrics[2]
    # The report's pictures go through the network each time; the test sets (12 and 6) do not, nor do the 27
    # training images, whose penultimate activations some scores learn from.
    assert counts[0] == counts[2] == counts[1] + 45
