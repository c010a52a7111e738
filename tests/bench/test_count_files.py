"""How many files somebody reads who follows one image through the package: what docs/design.md promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.count_files import touched
from gradmix.detection import KNN
from gradmix.recognition import fit, load, save
from tests.training.tiny import make_photos, tiny_images, tiny_recipe

MOST_FILES = 25


@pytest.mark.parametrize(("method", "detector"), [("gradmix", "knn"), ("ce", "mls"), ("arpl", "mls")])
def test_a_prediction_touches_few_files(tmp_path: Path, method: str, detector: str) -> None:
    save(fit(tiny_images(4), tiny_recipe(method=method, max_steps=1)), tmp_path / "model.safetensors")
    make_photos(tmp_path / "photos")
    called, imported = touched(["predict", str(tmp_path), str(tmp_path / "photos" / "disc" / "0.png")])
    model = load(tmp_path)
    assert model.decision.detector.name == detector
    assert {"cli/predict.py", "data/decoding.py", "models/network.py", "detection/decision.py"} <= called
    assert ("detection/bank.py" in called) == isinstance(model.decision.detector, KNN)
    assert called <= imported
    assert len(called) <= MOST_FILES, sorted(called)
