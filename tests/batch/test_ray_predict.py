"""``gradmix predict --ray`` on a Ray of two workers here, row by row next to the plain command."""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from gradmix.batch import Inputs, predict_batches, predict_to_file, ray_predict
from gradmix.batch.ray_predict import make_ray_predictor
from gradmix.cli import main
from gradmix.errors import UserError
from gradmix.recognition import load
from tests.cli.conftest import save_shapes
from tests.training.tiny import CLASSES

# Ray's workers give way to everything else (nice 15); on a busy machine a test would take minutes.
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def two_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """700 images in three batches, some of them unreadable."""
    folder = save_shapes(tmp_path / "many", CLASSES, 7)
    for kind in CLASSES:
        for i in range(7, 233):
            (folder / kind / f"{i:03}.png").hardlink_to(folder / kind / f"{i % 7:02}.png")
    (folder / "disc" / "050.png").unlink()
    (folder / "disc" / "050.png").write_text("no image")
    (folder / "zz.png").symlink_to("nowhere.png")
    return folder


def rows(file: Path) -> list[dict[str, str]]:
    with open(file, newline="") as text:
        return list(csv.DictReader(text))


class Stopped(Exception):
    """Stands for whatever ends the work."""


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
def test_two_workers_answer_as_one_process_does(many: Path, run: Path) -> None:
    assert main(["predict", str(run), "many", "--out", "plain.csv"]) == 0  # relative paths, too
    assert main(["predict", str(run), "many", "--out", "ray.csv", "--ray"]) == 0
    assert ray.is_initialized()  # a cluster that was there before is left alone
    plain, by_ray = rows(Path("plain.csv")), rows(Path("ray.csv"))
    assert len(plain) == len(by_ray) == 700
    for ours, theirs in zip(plain, by_ray, strict=True):
        assert {k: v for k, v in ours.items() if k != "score"} == {
            k: v for k, v in theirs.items() if k != "score"
        }
        if not ours["error"]:
            assert float(ours["score"]) == pytest.approx(float(theirs["score"]), abs=1e-5)
    assert sum(bool(row["error"]) for row in by_ray) == 2
    assert not list(Path().glob("*.part*"))


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
def test_what_one_began_the_other_finishes(many: Path, run: Path) -> None:
    def begin(*args: Any) -> Any:
        yield next(predict_batches(*args))
        raise Stopped

    inputs = Inputs.from_paths([many])
    with pytest.raises(Stopped):
        predict_to_file(run, inputs, Path("a.csv"), predictor=begin)
    done = predict_to_file(run, inputs, Path("a.csv"), predictor=make_ray_predictor())
    assert (done.images, done.resumed, done.unreadable) == (700, 256, 2)
    predict_to_file(run, inputs, Path("b.csv"))
    assert [row["label"] for row in rows(Path("a.csv"))] == [row["label"] for row in rows(Path("b.csv"))]


@pytest.mark.slow
def test_the_command_starts_and_ends_a_ray_of_its_own(many: Path, run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gradmix", "predict", run, many, "--out", "a.jsonl", "--ray"],
        capture_output=True,
        text=True,
        env=os.environ | SETTINGS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "a.jsonl\n"
    assert len(Path("a.jsonl").read_text().splitlines()) == 700
    assert any(line.startswith("700 images: ") for line in done.stderr.splitlines())
    assert done.stderr.splitlines()[-1].startswith("drift: ")  # Ray itself may say something before
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_no_cluster_there_is_one_line(many: Path, run: Path) -> None:
    with socket.socket() as probe:  # a port where nobody listens
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    done = subprocess.run(
        [sys.executable, "-m", "gradmix", "predict", run, many, "--out", "a.csv", "--ray", address],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert f"no Ray cluster at {address} ([Errno 111] Connection refused)" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not list(Path().glob("a.csv*"))


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
def test_a_worker_that_fails_is_one_line(many: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (run / "model.safetensors").read_bytes()
    monkeypatch.setattr(ray_predict, "_pack_model", lambda recognizer: whole[:1000])
    with pytest.raises(UserError, match=r"a Ray worker failed: .*truncated or not a model file") as caught:
        predict_to_file(run, Inputs.from_paths([many]), Path("a.csv"), predictor=make_ray_predictor())
    assert "\n" not in str(caught.value)


def test_workers_get_the_model_that_was_loaded(photos: Path, run: Path) -> None:
    """Not what is in its file by then: rows of two models would be mixed."""
    recognizer, inputs = load(run), Inputs.from_paths([photos])
    assert main(["forget", str(run), "--name", "disc"]) == 0
    Path("sent.safetensors").write_bytes(ray_predict._pack_model(recognizer))
    sent = load("sent.safetensors")
    assert sent.gallery.pictures is None
    assert [*predict_batches(sent, inputs)] == [*predict_batches(recognizer, inputs)]


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(UserError, match=r"--ray needs the extra 'ray': pip install 'gradmix\[ray\]'"):
        make_ray_predictor()
