"""Trial by trial: what is done is not done again, what was cut short is gone on with, mistakes are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.experiments.engine import run as run_module
from gradmix.experiments.engine.results import TrialFiles
from gradmix.experiments.engine.trainings import Store
from gradmix.experiments.images import GeneratedImages, TrialData
from gradmix.experiments.measures import MEASURES
from gradmix.experiments.report.page import write_experiment
from gradmix.training import Interrupted, RunFolder, Trained
from gradmix.training.session import Watch

from .conftest import smoke_runner

ONE = {"protocols": ["mnist"], "methods": ["ce"]}


def marks(folder: Path) -> dict[str, int]:
    """When every file of the trainings and trials was last written."""
    return {
        str(p.relative_to(folder)): p.stat().st_mtime_ns
        for p in folder.rglob("*")
        if p.is_file() and {"trainings", "trials"} & set(p.parts) and "tensorboard" not in p.parts
    }


def test_a_finished_experiment_is_not_touched(tmp_path: Path) -> None:
    first = smoke_runner("table2", tmp_path, **ONE).run()
    before = marks(tmp_path)
    again = smoke_runner("table2", tmp_path, **ONE).run()
    assert marks(tmp_path) == before
    assert again.trials == first.trials
    assert not list(tmp_path.rglob("last.pt"))  # what was needed to go on is gone


def test_more_rows_are_added_to_what_is_there(tmp_path: Path) -> None:
    smoke_runner("table2", tmp_path, **ONE).run()
    before = marks(tmp_path)
    both = smoke_runner("table2", tmp_path, protocols=["mnist"], methods=["gradmix"]).run()
    assert {trial.arm for trial in both.trials} == {"ce", "gradmix"}
    assert before.items() <= marks(tmp_path).items()


def test_a_trial_that_failed_is_the_only_one_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(inputs: object) -> None:
        raise RuntimeError("the lights went out")

    runner = smoke_runner("table2", tmp_path, protocols=["mnist"], methods=["ce", "gradmix"])
    smoke_runner("table2", tmp_path, **ONE).run()
    broken = MEASURES["open_set"].__class__(fail, fail, "")  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setitem(run_module.MEASURES, "open_set", broken)
        with pytest.raises(RuntimeError, match="lights"):
            runner.run()
    half = runner.collect_so_far()
    assert (half.missing, half.is_finished) == (1, False)
    write_experiment(half)
    assert "Not finished: 1 of 2 trials" in (half.folder / "result.md").read_text()
    before = marks(tmp_path)
    assert [trial.name for trial in runner.list_todo()] == ["mnist.gradmix.0"]
    assert runner.run().is_finished
    assert before.items() <= marks(tmp_path).items()  # trained already: only measured


def test_force_does_it_again(tmp_path: Path) -> None:
    runner = smoke_runner("table2", tmp_path, **ONE)
    first = runner.run()
    before = marks(tmp_path)
    runner.forget()
    assert [trial.name for trial in runner.list_todo()] == ["mnist.ce.0"]
    second = runner.run()
    after = marks(tmp_path)
    assert after.keys() == before.keys()
    assert all(after[name] > before[name] for name in after)
    assert second.trials[0].metrics == first.trials[0].metrics


def test_results_of_another_recipe_are_not_overwritten(tmp_path: Path) -> None:
    smoke_runner("table2", tmp_path, **ONE).run()
    with pytest.raises(
        UserError, match=r"holds 'mnist.ce.0' of another setting; use another --out, or --force"
    ):
        smoke_runner("table2", tmp_path, **ONE, overrides={"lr": "0.01"}).run()
    with pytest.raises(UserError, match="with other recipe fields"):
        smoke_runner(
            "table2", tmp_path, protocols=["mnist"], methods=["gradmix"], overrides={"lr": "0.01"}
        ).run()


def test_other_images_than_trained_on_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = smoke_runner("table2", tmp_path, **ONE)
    runner.run()
    runner.files.remove("mnist.ce.0")
    real = GeneratedImages.load_trial_data

    def darker(self: GeneratedImages, *asked: object) -> TrialData:
        found = real(self, *asked)  # type: ignore[arg-type]
        train = ImageSet(found.train.images[:] // 2, found.train.labels, found.train.class_names)
        return TrialData(train, found.test, found.unknown, found.unknown_names)

    monkeypatch.setattr(GeneratedImages, "load_trial_data", darker)
    with pytest.raises(UserError, match="training images have changed"):
        runner.run()


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    runner = smoke_runner("table2", tmp_path, **ONE)
    runner.run()
    (runner.folder / "trials" / "mnist.ce.0.json").write_text("{")
    with pytest.raises(UserError, match=r"mnist\.ce\.0\.json is damaged .* delete it"):
        runner.run()


def test_the_result_says_what_it_depends_on(tmp_path: Path) -> None:
    result = smoke_runner("table2", tmp_path, **ONE).run()
    [trial] = json.loads((result.folder / "result.json").read_text())["trials"]
    assert {"recipe", "seed", "split_hash", "versions", "minutes", "steps", "training"} <= trial.keys()
    assert trial["recipe"]["seed"] == trial["seed"] == 0
    assert TrialFiles(result.folder).read()["mnist.ce.0"].metrics == trial["metrics"]


def test_a_training_stopped_in_the_middle_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = smoke_runner("table2", tmp_path / "whole", **ONE).run()
    runner = smoke_runner("table2", tmp_path / "stopped", **ONE)
    keep_snapshots = Store._keep_snapshots

    def stop_at_two(self: Store, run: RunFolder) -> Watch:
        keep = keep_snapshots(self, run)
        assert keep is not None

        def watch(now: Trained, total: int) -> None:
            keep(now, total)
            if now.steps == 2:
                os.kill(os.getpid(), signal.SIGINT)

        return watch

    with monkeypatch.context() as patch:
        patch.setattr(Store, "_keep_snapshots", stop_at_two)
        with pytest.raises(Interrupted, match="stopped after step 2 of 4"):
            runner.run()
    assert list(tmp_path.glob("stopped/trainings/*/last.pt"))
    again = runner.run()
    assert again.trials[0].metrics == whole.trials[0].metrics
    assert again.trials[0].curve == whole.trials[0].curve


@pytest.mark.slow
def test_killed_and_started_again_it_ends_in_the_same_numbers(tmp_path: Path) -> None:
    def start(out: str) -> subprocess.Popen[bytes]:
        words = ["reproduce", "table2", "--preset", "smoke", "--protocol", "mnist,svhn", "--out", out]
        words += ["--method", "ce,gradmix"]
        return subprocess.Popen(
            [sys.executable, "-m", "gradmix", *words],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    killed = start("killed")
    while not list((tmp_path / "killed").glob("table2-smoke/trials/*.json")):
        assert killed.poll() is None, "it ended before it was killed"
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    for out in ("killed", "whole"):
        assert start(out).wait(timeout=900) == 0
    numbers = [
        {t.name: dict(t.metrics) for t in TrialFiles(tmp_path / out / "table2-smoke").read().values()}
        for out in ("killed", "whole")
    ]
    assert numbers[0] == numbers[1]
    assert len(numbers[0]) == 4
