"""Several processes at one experiment: each training once, the same results, and no trace of who died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradmix.cli import main
from gradmix.experiments.engine.jobs import run_helpers
from gradmix.files import try_lock

from .conftest import smoke_runner

CUT = ["table1", "--preset", "smoke", "--protocol", "cifar10"]


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "gradmix", "reproduce", *CUT, "--out", str(out), *more]


def summary(out: Path) -> object:
    return json.loads((out / "table1-smoke/result.json").read_text())["summary"]


def trained_at(out: Path) -> dict[str, int]:
    return {f.parent.name: f.stat().st_mtime_ns for f in out.glob("trainings/*/model.safetensors")}


def test_a_claim_is_ours_alone_and_given_back(tmp_path: Path) -> None:
    with (
        try_lock(tmp_path / "a") as first,
        try_lock(tmp_path / "a") as second,
        try_lock(tmp_path / "b") as other,
    ):
        assert (first, second, other) == (True, False, True)
    with try_lock(tmp_path / "a") as again:
        assert again


def test_what_another_process_holds_is_left_to_it(tmp_path: Path) -> None:
    runner = smoke_runner("table2", tmp_path, protocols=["mnist"], methods=["ce", "gradmix"])
    held, free = runner.plan.trials
    found = runner.look(timed=False)
    with try_lock(runner.store.lock(held.training)):
        runner.work(found, wait=False)
    assert [trial.name for trial in runner.list_todo()] == [held.name]
    assert runner.files.has(free.name)


@pytest.mark.slow
def test_two_jobs_end_in_the_result_of_one(tmp_path: Path) -> None:
    subprocess.run(command(tmp_path / "one", "--jobs", "1"), check=True, env=one_thread())
    done = subprocess.run(
        command(tmp_path / "two", "--jobs", "2"), check=True, env=one_thread(), capture_output=True, text=True
    )
    assert summary(tmp_path / "two") == summary(tmp_path / "one")
    assert done.stderr.count("trial 0: ID") == 4  # each told once, whoever did it


@pytest.mark.slow
def test_the_command_given_twice_shares_the_work(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            command(tmp_path, "--jobs", "1"), env=one_thread(), stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(text.count("trial 0: ID") for text in told) == 4
    assert len(trained_at(tmp_path)) == 4


@pytest.mark.slow
def test_work_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    victim = subprocess.Popen(command(tmp_path, "--jobs", "1"), env=one_thread(), stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob("trainings/*/recipe.yaml")):
        time.sleep(0.02)
        assert victim.poll() is None
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    subprocess.run(command(tmp_path, "--jobs", "1"), check=True, env=one_thread())
    assert len(trained_at(tmp_path)) == 4


def test_helpers_are_asked_to_stop_when_the_first_stops() -> None:
    started = time.monotonic()
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(KeyError), run_helpers(sleeper, 2, lambda line: None):
        raise KeyError
    assert time.monotonic() - started < 300  # half of what they would sleep


def test_what_helpers_say_is_passed_on() -> None:
    said: list[str] = []
    with run_helpers([sys.executable, "-c", "import sys; print('hello', file=sys.stderr)"], 3, said.append):
        pass
    assert said == ["hello", "hello"]


def test_no_jobs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *CUT, "--jobs", "0"]) == 2
    assert "--jobs must be at least 1, not 0" in capsys.readouterr().err


def one_thread() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}
