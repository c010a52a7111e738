"""Real processes, really stopped: whatever ends a run, --resume reaches the bytes of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gradmix.training import RunFolder
from tests.forked import Forked, ForkServer, fork_server
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


class Trainings:
    """Starts ``gradmix train`` quickly, again and again."""

    def __init__(self, server: ForkServer, place: Path) -> None:
        self.server, self.place = server, place

    def start(self, *words: str) -> Forked:
        return self.server.start("train", *words, folder=self.place, environment=environment(self.place))

    def finish(self, *words: str) -> None:
        """Run one to its end, which must be a good one."""
        process = self.start(*words)
        _, err = process.communicate()
        assert process.returncode == 0, err


@contextmanager
def trainings(folder: Path) -> Iterator[Trainings]:
    with fork_server(folder) as server:
        yield Trainings(server, folder)


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
        process = fast.start(*train_words("killed"))
        for number, step in enumerate(moments):
            said = f"kill {number} of seed {SEED}, at step {step}{', saving' * (number in saving)}"
            try:
                kill_at(process.pid, run, step, number in saving, chance)
            except ProcessLookupError:
                pytest.fail(f"{said}: it ended by itself: {process.communicate()}")
            assert process.wait() == -signal.SIGKILL, said
            in_the_middle_of_a_save += bool(unfinished(run))
            assert_nothing_is_torn(run)
            process = fast.start("--resume", "--out", "killed")
        assert process.wait() == 0, process.communicate()
    assert in_the_middle_of_a_save >= len(saving)
    assert_same_end(place, "killed")
    assert not list(run.path.glob(".*"))


def test_killed_while_the_model_is_made(place: Path) -> None:
    """After the last step: features, index, threshold, and the model's file, which is whole or absent."""
    chance, kills = random.Random(SEED), 0
    with trainings(place) as fast:
        fast.finish(*train_words("late"))
        model = RunFolder(place / "late").model_file

        def make_again() -> Forked:
            model.unlink(missing_ok=True)
            return fast.start("--resume", "--out", "late")

        started = time.monotonic()
        process = make_again()
        assert process.wait() == 0, process.communicate()
        seconds = time.monotonic() - started
        while kills < 4:
            process = make_again()
            time.sleep(chance.uniform(0.2, 0.9) * seconds)
            process.kill()  # unless it was quicker this time
            if process.wait() == -signal.SIGKILL:
                kills += 1
            else:
                seconds *= 0.8
            if not model.exists():
                fast.finish("--resume", "--out", "late")
            assert_same_end(place, "late")
