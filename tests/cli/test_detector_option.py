"""``--detector`` on every command that decides: another score, with a threshold of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradmix import OpenSetClassifier
from gradmix.cli import main
from gradmix.recognition import load
from gradmix.serve.live_model import LiveModel
from tests.cli.conftest import TINY, save_shapes
from tests.training.tiny import CLASSES

OPTIONS = [word for i, word in enumerate(TINY) if "--layers" not in TINY[max(0, i - 1) : i + 1]]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of cross-entropy; not to be written to."""
    folder = tmp_path_factory.mktemp("classifier")
    save_shapes(folder / "photos", CLASSES, 12)
    save_shapes(folder / "test", CLASSES, 3, seed=1)
    words = ["train", str(folder / "photos"), "--method", "ce", "--out", str(folder / "run"), *OPTIONS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADMIX_CACHE", str(folder / "cache"))
        assert main(words) == 0
    return folder


@pytest.fixture
def copy(classifier: Path, tmp_path: Path) -> Path:
    """Its model, to do with as one likes."""
    file = tmp_path / "model.safetensors"
    file.write_bytes((classifier / "run" / "model.safetensors").read_bytes())
    return file


def predictions(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["predict", *map(str, words), "--format", "json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_predict_and_calibrate(classifier: Path, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = classifier / "test"
    own = predictions(capsys, copy, test)
    assert own == predictions(capsys, copy, test, "--detector", "mls")
    by_neighbours = predictions(capsys, copy, test, "--detector", "knn")
    assert [row["score"] for row in own] != [row["score"] for row in by_neighbours]
    before = copy.read_bytes()
    assert main(["calibrate", str(copy), "--detector", "knn"]) == 0
    assert copy.read_bytes() != before  # predict left the file as it was, calibrate does not
    assert predictions(capsys, copy, test) == by_neighbours
    assert load(copy).decision.detector.name == "knn"


def test_a_resumed_file_of_answers_is_of_one_detector(
    classifier: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", str(copy), str(classifier / "test"), "--detector", "energy"]
    assert main([*words, "--out", str(tmp_path / "a.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    shown = predictions(capsys, copy, classifier / "test", "--detector", "energy")
    assert [row["score"] for row in rows] == [row["score"] for row in shown]


def test_serve(classifier: Path, copy: Path) -> None:
    own, other = LiveModel(copy).current.recognizer, LiveModel(copy, "knn").current.recognizer
    assert own.decision.detector.name == "mls"
    assert other.decision.detector.name == "knn"
    assert other.threshold == load(copy).with_detector("knn").threshold


def test_in_a_recipe_and_in_python(classifier: Path) -> None:
    fields = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(OPTIONS[::2], OPTIONS[1::2], strict=True)
    }
    made = OpenSetClassifier(method="ce", detector="energy", overrides={**fields, "max_steps": 2})
    recognizer = made.fit(classifier / "photos").recognizer_
    assert recognizer.decision.detector.name == "energy"
    assert recognizer.recipe["detector"] == "energy"


def test_a_threshold_of_training_images_is_mentioned(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", str(classifier / "photos"), "--method", "ce", "--out", str(tmp_path / "run"), *OPTIONS]
    assert main([*words, "--holdout", "0", "--max-steps", "2"]) == 0
    assert "no images were held out" in capsys.readouterr().err
