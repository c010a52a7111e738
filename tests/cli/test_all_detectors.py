"""``gradmix evaluate RUN --detector all``: the whole table, sorted; and one line for what cannot be had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gradmix.cli import main
from tests.cli.conftest import TINY, save_shapes
from tests.training.tiny import CLASSES

OPTIONS = [word for i, word in enumerate(TINY) if "--layers" not in TINY[max(0, i - 1) : i + 1]]
OF_H = {"she", "vim", "residual", "neco", "fdbd", "nci", "nnguide", "relation", "react", "vra", "dice"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/, test/, others/ and a run of cross-entropy with a linear projection."""
    made = tmp_path_factory.mktemp("classifier")
    save_shapes(made / "photos", CLASSES, 12)
    save_shapes(made / "test", CLASSES, 3, seed=1)
    save_shapes(made / "others", ("cross",), 6, seed=2)
    words = ["train", str(made / "photos"), "--method", "ce", "--out", str(made / "run"), *OPTIONS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADMIX_CACHE", str(made / "cache"))
        assert main([*words, "--max-steps", "8"]) == 0
    return made


def evaluate(folder: Path, *words: str) -> int:
    sets = ["--known", str(folder / "test"), "--unknown", str(folder / "others")]
    return main(["evaluate", str(folder / "run"), *sets, "--out", "out", *words])


def table(out: str) -> dict[str, float]:
    """AUROC by the name of the row, in the order printed; it comes after the accuracy."""
    lines = [line.split() for line in out.splitlines() if line.strip()]
    rows = lines[1 + next(i for i, line in enumerate(lines) if line[0] == "score") :]
    return {row[0]: float(row[2]) for row in rows}


def test_the_whole_table_is_sorted_and_the_own_score_marked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(folder, "--detector", "all") == 0
    out = capsys.readouterr().out
    printed = table(out)
    assert list(printed.values()) == sorted(printed.values(), reverse=True)
    assert [line.split()[0] for line in out.splitlines() if line.split()[-1:] == ["own"]] == ["mls"]
    assert OF_H | {
        "gen",
        "temperature",
        "klm",
        "knn_distance",
        "rmds",
        "ash",
        "scale",
        "nno",
        "openmax",
    } <= set(printed)
    metrics = json.loads(Path("out/evaluation.json").read_text())["metrics"]
    assert next(iter(metrics)) == "mls"  # in the file, the own one is first
    assert set(printed) == set(metrics)
    assert 100 * metrics["vim"]["auroc"] == pytest.approx(printed["vim"], abs=0.005)


def test_sums_and_aliases(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate(folder, "--detector", "knn+mls,mahalanobis,mds,maxlogit") == 0
    assert set(table(capsys.readouterr().out)) == {"mls", "knn+mls", "nno"}
    model = shutil.copy(folder / "run" / "model.safetensors", "model.safetensors")
    assert main(["calibrate", str(model), "--detector", "knn+mls"]) == 0
    capsys.readouterr()
    assert main(["predict", str(model), str(folder / "test"), "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 9


def test_without_its_training_images_a_run_has_fewer_scores(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(folder / "run", moved / "run")
    for part in ("test", "others"):
        shutil.copytree(folder / part, moved / part)
    facts = json.loads((moved / "run" / "run.json").read_text())
    facts["data"]["source"] = str(tmp_path / "nowhere")
    (moved / "run" / "run.json").write_text(json.dumps(facts))
    assert evaluate(moved) == 0
    printed = set(table(capsys.readouterr().out))
    assert not OF_H & printed
    assert {"ash", "scale", "gen", "rmds"} <= printed
    assert evaluate(moved, "--detector", "vim") == 2
    error = capsys.readouterr().err.strip()
    assert "nowhere" in error
    assert len(error.splitlines()) == 1


def test_predict_refuses_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(folder / "run"), str(folder / "test"), "--detector", "vim"]) == 2
    error = capsys.readouterr().err.strip()
    assert "detector vim needs penultimate" in error
    assert "projection: none" in error
    assert len(error.splitlines()) == 1
    assert main(["predict", str(folder / "run"), str(folder / "test"), "--detector", "ash"]) == 0


def test_bench_detectors(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "detectors", "--train", "120", "--test", "30", "--dim", "8", "--classes", "3"]
    assert main([*words, "--detector", "vim", "--detector", "mds", "--detector", "knn+mls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["vim", "nno", "knn+mls"]
    assert lines[2].split()[-1] == "–"  # no loop
    assert "120 training and 30 test images of 8 activations" in lines[4]
    assert main(["bench", "detectors", "--train", "0"]) == 2
    assert "--train must be at least 1" in capsys.readouterr().err
