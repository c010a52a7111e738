"""From a folder of images to answers: train, evaluate, predict."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gradmix.cli import main
from gradmix.recognition import load
from gradmix.training import Interrupted, RunFolder, load_recipe
from tests.cli.conftest import TINY
from tests.training.tiny import CLASSES, SIDE


def gradmix(*words: str | Path) -> int:
    return main([str(word) for word in words])


def test_training_leaves_a_whole_run(trained: Path) -> None:
    run = RunFolder.open(trained / "run")
    names = {file.name for file in run.path.iterdir()} - {"tensorboard"}
    assert names == {"recipe.yaml", "run.json", "history.jsonl", "last.pt", "model.safetensors", "run.lock"}
    facts = run.facts()
    assert facts["data"]["source"] == str(trained / "photos")
    assert facts["data"]["counts"] == dict.fromkeys(CLASSES, 12)
    assert facts["seed"] == 0
    assert {"torch", "gradmix"} <= facts["versions"].keys()
    assert facts["steps"] == 6  # 27 images after hold-out, batches of 8, 2 epochs
    assert run.recipe().training.batch_size == 8
    assert [row["step"] for row in run.history()] == [2, 4, 6]


def test_train_prints_the_model_and_nothing_else(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradmix("train", photos, "--out", "new", *TINY, "--max-steps", "1") == 0
    out, err = capsys.readouterr()
    assert out == f"{Path('new') / 'model.safetensors'}\n"
    assert "36 images of 3 classes at 16x16 colour; gradmix with resnet10_16" in err
    assert "note:" not in err  # 9 held-out images are enough for one false reject in five
    assert gradmix("train", photos, "--out", "sure", *TINY, "--max-steps", "1", "--false-reject=0.01") == 0
    assert (
        "note: 9 held-out images cannot bound false rejects by 0.01; 99 would do" in capsys.readouterr().err
    )


def test_evaluate_on_folders(trained: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("evaluate", run, "--known", trained / "test", "--unknown", trained / "others")
    assert gradmix(*words) == 0
    out, err = capsys.readouterr()
    assert "knn" in out
    assert "AUROC" in out
    assert "report.html" in err
    found = json.loads((run / "evaluation.json").read_text())
    assert 0 <= found["metrics"]["knn"]["auroc"] <= 1
    assert found["recipe"]["encoder"] == "resnet10_16"
    assert found["seed"] == 0
    assert {"gradmix", "torch"} <= found["versions"].keys()
    assert (found["known test images"], found["unknown test images"]) == (12, 6)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "http://" not in page.replace("http://www.w3.org", "")  # self-contained


def test_a_second_evaluation_leaves_the_first_alone(
    trained: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("evaluate", run, "--known", trained / "test", "--unknown", trained / "others")
    assert gradmix(*words) == 0
    first = (run / "evaluation.json").read_bytes()
    capsys.readouterr()
    assert gradmix(*words, "--score", "knn:sum", "--out", "again/sum") == 0
    assert "again/sum/report.html" in capsys.readouterr().err
    assert "knn:sum" in json.loads(Path("again/sum/evaluation.json").read_text())["metrics"]
    assert (run / "evaluation.json").read_bytes() == first


def answers(run: Path, capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    capsys.readouterr()
    assert gradmix("predict", run, *words) == 0
    return capsys.readouterr().out


def test_predict_in_every_format(trained: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others, one = trained / "others", trained / "test" / "bar" / "00.png"
    rows = list(csv.DictReader(io.StringIO(answers(run, capsys, others, one, "--format", "csv"))))
    assert [row["file"] for row in rows] == [
        *(str(others / "cross" / f"{i:02d}.png") for i in range(6)),
        str(one),
    ]
    as_json = json.loads(answers(run, capsys, others, one, "--format", "json"))
    assert [{k: str(v) for k, v in row.items()} for row in as_json] == rows
    for row in as_json:
        assert row["label"] in (row["nearest"], "unknown")
        assert row["nearest"] in CLASSES
    recognizer = load(run)
    scores = recognizer.predict(recognizer.read(others, one)).score
    assert [row["score"] for row in as_json] == pytest.approx(scores.tolist(), abs=1e-6)
    assert scores.abs().max() <= recognizer.index.k  # the recipe sums k cosines
    table = answers(run, capsys, others, one)
    for row in rows:
        (line,) = [line for line in table.splitlines() if row["file"] in line]
        assert line.split()[-4:-2] == [row["label"], row["nearest"]]
    assert answers(run / "model.safetensors", capsys, one, "--format", "json") == answers(
        run, capsys, one, "--format", "json"
    )


def test_long_names_stay_whole_in_a_table(
    trained: Path, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    name = trained / "test" / "bar" / "00.png"
    assert str(name) in answers(run, capsys, name)


def test_class_and_file_names_are_shown_as_they_are(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = '[red] "a", b'
    (photos / "bar").rename(photos / odd)
    assert gradmix("train", photos, "--out", "run", *TINY, "--max-steps", "1") == 0
    file = photos / odd / "00.png"
    (row,) = csv.DictReader(io.StringIO(answers(Path("run"), capsys, file, "--format", "csv")))
    assert row["file"] == str(file)
    assert f"{odd}/00.png" in answers(Path("run"), capsys, file)


def write_idx(file: Path, values: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    file.write_bytes(header + values.astype(np.uint8).tobytes())


@pytest.fixture
def digits_root(tmp_path: Path) -> Path:
    """A data root with an MNIST of 6 + 3 images a digit: noise whose brightness is the digit."""
    rng = np.random.default_rng(0)
    for prefix, each in (("train", 6), ("t10k", 3)):
        labels = np.repeat(np.arange(10), each)
        images = rng.integers(0, 30, (len(labels), 28, 28)) + 22 * labels[:, None, None]
        write_idx(tmp_path / "root" / "mnist" / f"{prefix}-images-idx3-ubyte", images)
        write_idx(tmp_path / "root" / "mnist" / f"{prefix}-labels-idx1-ubyte", labels)
    return tmp_path / "root"


def test_protocols_of_the_literature(
    digits_root: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    words = ["--protocol", "mnist", "--trial", "1", "--data-root", digits_root]
    tiny = [*TINY, "--channels", "1", "--flip", "false", "--max-steps", "2"]
    assert gradmix("train", *words, "--out", "run", *tiny) == 0
    facts = RunFolder.open("run").facts()
    assert facts["data"]["split"]["known"] == [3, 2, 6, 9, 4, 0]
    assert facts["data"]["counts"] == dict.fromkeys("326940", 6)
    assert len(facts["split_hash"]) == 16
    assert gradmix("evaluate", "run", "--data-root", digits_root) == 0  # on the split it was trained for
    out = capsys.readouterr().out
    assert "knn" in out
    assert "nno" in out
    found = json.loads(Path("run/evaluation.json").read_text())
    assert (found["known test images"], found["unknown test images"]) == (18, 12)
    assert found["split"] == facts["split_hash"]
    assert found["test"] == "mnist, trial 1 (arpl_2020)"
    assert gradmix("evaluate", "run", *words, "--score", "knn") == 0
    other = refused("evaluate", "run", *words[:2], "--trial", "0", *words[4:])
    assert "mnist trial 0 has other known classes than the run" in other
    assert "did you mean 'nno'" in refused("evaluate", "run", "--data-root", digits_root, "--score", "nn0")
    Path("run/model.safetensors").unlink()
    assert gradmix("train", "--resume", "--out", "run", "--data-root", digits_root) == 0


def test_only_some_classes_known(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradmix("train", photos, "--known", "square, bar", "--out", "a", *TINY, "--max-steps", "1") == 0
    assert list(RunFolder.open("a").facts()["data"]["counts"]) == ["square", "bar"]
    assert gradmix("evaluate", "a") == 0
    found = json.loads(Path("a/evaluation.json").read_text())
    assert found["unknown test images"] == 12  # all discs
    assert gradmix("train", photos, "--n-known", "2", "--split-seed", "3", "--out", "b", *TINY) == 0
    assert len(RunFolder.open("b").facts()["data"]["counts"]) == 2


def test_unreadable_images_are_skipped_and_counted(
    photos: Path, run: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    (photos / "bar" / "03.png").write_bytes(b"")
    (photos / "disc" / "04.png").write_text("no image")
    assert gradmix("train", photos, "--skip-bad", "--out", "new", *TINY, "--max-steps", "1") == 0
    err = capsys.readouterr().err
    assert "left out 2 unreadable" in err
    assert "Warning" not in err
    assert RunFolder.open("new").facts()["data"]["counts"] == {"bar": 11, "disc": 11, "square": 12}
    Path("new/model.safetensors").unlink()
    assert gradmix("train", "--resume", "--out", "new") == 0  # it remembers what to skip
    assert gradmix("predict", run, photos / "bar", "--skip-bad", "--format", "csv") == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1 + 11 + 1  # the first line is the model's path from --resume
    assert "left out 1 unreadable images; the first:" in err
    known = ("--known", "bar,square", "--out", "split")
    assert "04.png" in refused("train", photos, *known) or "03.png" in refused("train", photos, *known)
    assert gradmix("train", photos, "--skip-bad", *known, *TINY, "--max-steps", "1") == 0
    assert gradmix("evaluate", "split") == 0  # on the split's held-out images, the same ones left out


def test_stopped_and_resumed(
    trained: Path, photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradmix.training import session

    with monkeypatch.context() as patch:
        patch.setattr(session, "_batches", lambda *a: (_ for _ in ()).throw(Interrupted(3, 6)))
        assert gradmix("train", photos, "--out", "new", *TINY) == 130
    assert "stopped after step 3 of 6; go on with: gradmix train --resume new" in capsys.readouterr().err
    assert gradmix("train", "--resume", "--out", "new") == 0
    ours, whole = load_file("new/model.safetensors"), load_file(trained / "run" / "model.safetensors")
    assert all(torch.equal(ours[name], whole[name]) for name in whole)


def test_a_recipe_of_ones_own(photos: Path) -> None:
    Path("my.yaml").write_text(f"base: small\nimage_size: {SIDE}\nencoder: resnet10_16\nmax_steps: 1\n")
    assert gradmix("train", photos, "--recipe", "my.yaml", "--out", "run", "--seed", "7") == 0
    recipe = RunFolder.open("run").recipe()
    assert recipe == load_recipe("my.yaml", {"seed": 7})
