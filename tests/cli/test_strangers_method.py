"""ARPL's file in an empty folder outside the package: trained, gone, and its model used by every command.

Each command is a process of its own, so that none remembers the method of another.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import gradmix.methods.arpl
from gradmix.recognition import load
from tests.cli.conftest import TINY, save_shapes
from tests.forked import fork_server
from tests.training.tiny import CLASSES

WORDS = ["--max-steps", "12", "--epochs", "99", "--optimizer", "sgd", "--lr", "0.05", "--projection", "none"]


Command = Callable[..., str]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Run ``gradmix WORDS`` in a folder; return what it prints."""
    with fork_server(tmp_path_factory.mktemp("server")) as server:

        def run(folder: Path, *words: str | Path) -> str:
            done = server.run(*words, folder=folder)
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory, command: Command) -> Path:
    """A folder with images and a run of a method whose file is no longer where it was."""
    folder = tmp_path_factory.mktemp("stranger")
    save_shapes(folder / "photos", CLASSES, 12)
    save_shapes(folder / "test", CLASSES, 4, seed=1)
    save_shapes(folder / "others", ("cross",), 6, seed=2)
    code = Path(gradmix.methods.arpl.__file__).read_text(encoding="utf-8")
    code = code.replace("from ..", "from gradmix.").replace("from .interface", "from gradmix.methods")
    file = folder / "reciprocal.py"
    file.write_text(re.sub(r"\bARPL\(", "Reciprocal(", code), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADMIX_CACHE", str(folder / "cache"))
        fields = [word for word in TINY if word not in ("--layers", "conv4_2")]
        command(folder, "train", "photos", "--method", "./reciprocal.py", *fields, *WORDS, "--out", "run")
    file.unlink()
    return folder


@pytest.fixture(scope="module")
def predicted(stranger: Path, command: Command) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(command(stranger, "predict", "run", "test", "--format", "json"))
    return rows


def test_its_points_are_in_the_model_file_and_decide(stranger: Path, predicted: list[dict[str, Any]]) -> None:
    model = load(stranger / "run")  # in this process nobody has heard of the method
    points = model.network.state_dict()["classifier.points"]
    assert points.shape == (len(CLASSES), model.network.feature_dim)
    assert float(points.std()) > 0
    assert model.decision.detector.name == "mls"
    assert model.recipe["method"] == "reciprocal"
    assert model.threshold.promised
    images = model.read(stranger / "test")
    z = model.outputs(images).features.double()
    distance = (z[:, None] - points.double()).square().mean(2)
    logits = distance - z @ points.double().T
    scores = torch.tensor([row["score"] for row in predicted], dtype=torch.float64)
    torch.testing.assert_close(scores, logits.amax(1), rtol=1e-4, atol=1e-4)
    assert [row["nearest"] for row in predicted] == [CLASSES[i] for i in logits.argmax(1).tolist()]


@pytest.mark.slow
def test_evaluate(stranger: Path, command: Command) -> None:
    command(stranger, "evaluate", "run", "--known", "test", "--unknown", "others")
    found = json.loads((stranger / "run" / "evaluation.json").read_text())["metrics"]
    assert next(iter(found)) == "mls"
    assert {"mls", "msp", "entropy", "energy", "knn", "nno"} <= set(found)


@pytest.mark.slow
def test_serve(stranger: Path, predicted: list[dict[str, Any]]) -> None:
    import httpx

    from tests.serve.conftest import server_process

    paths = [stranger / row["file"] for row in predicted]
    with server_process(stranger / "run" / "model.safetensors") as (port, _):
        files = [("images", (path.name, path.read_bytes())) for path in paths]
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/predict", files=files, timeout=60).json()
    for served, row in zip(answer["images"], predicted, strict=True):
        assert (served["label"], served["nearest"]) == (row["label"], row["nearest"])
        assert served["score"] == pytest.approx(row["score"], abs=1e-4)


@pytest.mark.slow
def test_export(stranger: Path, predicted: list[dict[str, Any]], command: Command) -> None:
    command(stranger, "export", "run", "--out", "exported")
    files = [str(stranger / row["file"]) for row in predicted]
    done = subprocess.run(
        [sys.executable, "exported/predict.py", *files],
        cwd=stranger,
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    for line, row in zip(done.stdout.splitlines(), predicted, strict=True):
        _, label, nearest, score, p_value = json.loads(line)
        assert (label, nearest) == (row["label"], row["nearest"])
        assert score == pytest.approx(row["score"], abs=1e-4)
        assert 0 < p_value <= 1
