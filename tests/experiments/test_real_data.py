"""Two true steps of the paper's own setting on real data, protocol by protocol."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradmix.cli import main
from gradmix.data import CLASSIC_PROTOCOLS
from gradmix.experiments.engine.results import TrialFiles

needs_data = pytest.mark.skipif("GRADMIX_DATA" not in os.environ, reason="GRADMIX_DATA says where data is")


@pytest.fixture
def real_data() -> str:
    return os.environ["GRADMIX_DATA"]


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("protocol", CLASSIC_PROTOCOLS)
def test_two_steps_of_the_paper(protocol: str, tmp_path: Path, real_data: str) -> None:
    """ResNet18, the paper's views, layers and data; batches of 16, for a CPU takes minutes over 256."""
    words = ["reproduce", "table2", "--preset", "paper", "--max-steps", "2", "--trials", "1"]
    words += ["--protocol", protocol, "--method", "gradmix", "--batch-size", "16", "--out", str(tmp_path)]
    assert main(words) == 0
    [trial] = TrialFiles(tmp_path / "table2-paper-2-steps").read().values()
    assert trial.steps == 2
    assert trial.recipe["encoder"] == "resnet18"
    assert 0 < trial.metrics["auroc"] < 1
