"""Real processes, really stopped: whatever ends a run, --resume reaches the bytes of an undisturbed one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gradmix.training import RunFolder
from tests.training.real_runs import (
    STEPS,
    assert_same_end,
    environment,
    finish,
    signal_when_at,
    start,
    steps_logged,
    train_words,
)

pytestmark = pytest.mark.slow
KILLS = 20
SEED = 0  # of the moments; any other must do as well

# Importing torch takes seconds, so this process does it once and forks for each command it is sent. It has
# no threads yet, and computes nothing itself: what it forks is as good as a process of its own.
FORKING = """
import json, os, sys
import gradmix.cli, gradmix.data, gradmix.recognition, gradmix.training
try:
    import torch.utils.tensorboard
except ImportError:
    pass
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = 70
        try:
            quiet = os.open("errors.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(quiet, 1), os.dup2(quiet, 2)
            code = gradmix.cli.main(json.loads(line))
        except SystemExit as stop:
            code = stop.code
        finally:
            sys.stderr.flush()
            os._exit(code or 0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Trainings:
    """Starts ``gradmix train`` quickly, again and again."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self.server = server

    def start(self, *words: str) -> int:
        """The process that runs it."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(["train", *words]) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def exit_code(self) -> int:
        """Of the last one; waits for its end."""
        assert self.server.stdout is not None
        return int(self.server.stdout.readline())


@contextmanager
def trainings(folder: Path) -> Iterator[Trainings]:
    server = subprocess.Popen(
        [sys.executable, "-c", FORKING],
        cwd=folder,
        env=environment(folder),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield Trainings(server)
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop(number: signal.Signals, place: Path) -> None:
    out = number.name
    process = start(place, *train_words(out))
    run = RunFolder(place / out)
    signal_when_at(process, run, 17, number)
    code, err = finish(process)
    assert code == 130
    assert "go on with: gradmix train --resume" in err
    assert "Traceback" not in err
    assert 17 <= steps_logged(run) < STEPS
    assert not run.model_file.exists()
    code, err = finish(start(place, "--resume", "--out", out))
    assert code == 0, err
    assert_same_end(place, out)


def kill_at(pid: int, run: RunFolder, step: int, while_saving: bool, chance: random.Random) -> None:
    """SIGKILL at a random moment after ``step``; or, ``while_saving``, while a checkpoint is half written."""
    while steps_logged(run) < step:
        os.kill(pid, 0)  # raises if it has ended by itself
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.05))
    while while_saving:
        os.kill(pid, signal.SIGCONT)
        if not unfinished(run):
            time.sleep(0.0002)
            continue
        time.sleep(chance.uniform(0, 0.002))
        os.kill(pid, signal.SIGSTOP)  # so that the save cannot end between looking and killing
        time.sleep(0.001)
        while_saving = not unfinished(run)
    os.kill(pid, signal.SIGKILL)


def unfinished(run: RunFolder) -> list[Path]:
    return list(run.path.glob(".last.pt.*.part"))


def assert_nothing_is_torn(run: RunFolder) -> None:
    """What has its final name is whole, whatever moment it was."""
    state = run.load_state()
    assert state is None or 1 <= state["step"] <= STEPS
    assert run.recipe().training.max_steps == STEPS
    assert [row["step"] for row in run.history()] == list(range(1, len(run.history()) + 1))


def test_killed_at_twenty_random_moments_of_one_run(place: Path) -> None:
    chance = random.Random(SEED)
    # Twenty steps before the end: on a busy machine this process may look some steps late.
    moments = sorted(chance.sample(range(1, STEPS - 20), KILLS))
    saving = set(chance.sample(range(KILLS), KILLS // 2))
    run = RunFolder(place / "killed")
    in_the_middle_of_a_save = 0
    with trainings(place) as fast:
        pid = fast.start(*train_words("killed"))
        for number, step in enumerate(moments):
            said = f"kill {number} of seed {SEED}, at step {step}{', saving' * (number in saving)}"
            try:
                kill_at(pid, run, step, number in saving, chance)
            except ProcessLookupError:
                pytest.fail(f"{said}: it ended by itself: {(place / 'errors.txt').read_text()}")
            assert fast.exit_code() == -signal.SIGKILL, said
            in_the_middle_of_a_save += bool(unfinished(run))
            assert_nothing_is_torn(run)
            pid = fast.start("--resume", "--out", "killed")
        assert fast.exit_code() == 0, (place / "errors.txt").read_text()
    assert in_the_middle_of_a_save >= len(saving)
    assert_same_end(place, "killed")
    assert not list(run.path.glob(".*"))


def test_killed_while_the_model_is_made(place: Path) -> None:
    """After the last step: features, index, threshold, and the model's file, which is whole or absent."""
    chance, kills = random.Random(SEED), 0
    with trainings(place) as fast:
        fast.start(*train_words("late"))
        assert fast.exit_code() == 0, (place / "errors.txt").read_text()
        model = RunFolder(place / "late").model_file

        def made_again() -> int:
            model.unlink(missing_ok=True)
            return fast.start("--resume", "--out", "late")

        started = time.monotonic()
        made_again()
        assert fast.exit_code() == 0, (place / "errors.txt").read_text()
        seconds = time.monotonic() - started
        while kills < 4:
            pid = made_again()
            time.sleep(chance.uniform(0.2, 0.9) * seconds)
            with suppress(ProcessLookupError):  # it was quicker this time
                os.kill(pid, signal.SIGKILL)
            if fast.exit_code() == -signal.SIGKILL:
                kills += 1
            else:
                seconds *= 0.8
            if not model.exists():
                fast.start("--resume", "--out", "late")
                assert fast.exit_code() == 0, (place / "errors.txt").read_text()
            assert_same_end(place, "late")
