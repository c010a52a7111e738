"""Stopping and going on ends in the same bytes as not stopping."""

from __future__ import annotations

import errno
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.training import Interrupted, Recipe, RunFolder, session, train
from gradmix.training.history_writer import HistoryWriter
from tests.training.tiny import tiny_images, tiny_recipe


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds to import, and has nothing to do with what is tested here."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def run_in(folder: Path, recipe: Recipe) -> RunFolder:
    return RunFolder.create(folder, recipe, {})


def weights(run: RunFolder) -> dict[str, Tensor]:
    state = run.load_state()
    assert state is not None
    optimizer = state["optimizer"]["state"]
    moments = {f"{i}.{k}": v for i, per in optimizer.items() for k, v in per.items() if v is not None}
    return state["method"] | moments


def assert_same_run(a: RunFolder, b: RunFolder) -> None:
    """Network, optimizer and history are equal to the last bit."""
    ours, theirs = weights(a), weights(b)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[name])), name
    assert without_minutes(a) == without_minutes(b)


def without_minutes(run: RunFolder) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "minutes"} for row in run.history()]


def stop_at(monkeypatch: pytest.MonkeyPatch, *steps: int) -> None:
    """Ask to stop after these steps, as a signal would."""

    @contextmanager
    def requests() -> Iterator[Callable[[], bool]]:
        yield lambda: counter[0] in steps

    counter = [0]
    take = session.set_learning_rate

    def counting(optimizer: torch.optim.Optimizer, lr: float) -> None:
        counter[0] += 1
        take(optimizer, lr)

    monkeypatch.setattr(session, "stop_requests", requests)
    monkeypatch.setattr(session, "set_learning_rate", counting)


@pytest.mark.parametrize(
    "fields",
    [
        {"optimizer": "adam"},
        {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5},
        {"optimizer": "sgd", "lr": 0.05, "weight_decay": 1e-4, "pairing": "symmetric"},
        {"method": "ce", "optimizer": "sgd", "lr": 0.05, "clip_norm": 0.1},
        {"method": "ce", "optimizer": "adam"},
        {"method": "ce+ssl", "optimizer": "adamw", "projection": "mlp"},
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_stopped_mid_epoch_and_resumed(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tiny_images(8)  # 24 images: 3 steps an epoch
    recipe = tiny_recipe(epochs=2, log_every=4, **fields)
    whole, stopped = run_in(tmp_path / "whole", recipe), run_in(tmp_path / "stopped", recipe)
    trained = train(images, recipe, whole)
    assert trained.steps == 6
    stop_at(monkeypatch, 2, 5)  # mid-epoch, and between rows of the history
    for step in (2, 5):
        with pytest.raises(Interrupted, match=f"stopped after step {step} of 6"):
            train(images, recipe, stopped)
    resumed = train(images, recipe, stopped)
    assert_same_run(whole, stopped)
    for a, b in zip(
        trained.network.state_dict().values(), resumed.network.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b)


def test_a_real_signal_finishes_the_step_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, recipe = tiny_images(8), tiny_recipe(log_every=1)
    whole, stopped = run_in(tmp_path / "whole", recipe), run_in(tmp_path / "stopped", recipe)
    train(images, recipe, whole)
    before = signal.getsignal(signal.SIGTERM)
    log = HistoryWriter.log
    for number, at in ((signal.SIGINT, 1), (signal.SIGTERM, 4)):

        def log_and_signal(
            self: HistoryWriter, step: int, row: Mapping[str, float], number: int = number, at: int = at
        ) -> None:
            log(self, step, row)
            if step == at:
                signal.raise_signal(number)

        monkeypatch.setattr(HistoryWriter, "log", log_and_signal)
        with pytest.raises(Interrupted) as stop:
            train(images, recipe, stopped)
        assert (stop.value.step, stop.value.total) == (at, 6)
        assert signal.getsignal(signal.SIGTERM) == before
    monkeypatch.setattr(HistoryWriter, "log", log)
    train(images, recipe, stopped)
    assert_same_run(whole, stopped)


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it is executed."""


@pytest.mark.parametrize("checkpoint_minutes", [0.0, 60.0])
def test_killed_between_checkpoints(
    checkpoint_minutes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows logged after the last checkpoint, or before the first one, are not logged twice."""
    images = tiny_images(8)
    recipe = tiny_recipe(log_every=1, checkpoint_minutes=checkpoint_minutes)
    whole, killed = run_in(tmp_path / "whole", recipe), run_in(tmp_path / "killed", recipe)
    train(images, recipe, whole)
    log = HistoryWriter.log

    def log_and_die(self: HistoryWriter, step: int, row: Mapping[str, float]) -> None:
        log(self, step, row)
        if step == 4:
            raise Killed

    monkeypatch.setattr(HistoryWriter, "log", log_and_die)
    with pytest.raises(Killed):
        train(images, recipe, killed)
    with open(killed.history_file, "a") as f:
        f.write('{"step": 5, "lo')  # the line that it was writing
    assert killed.state_file.exists() == (checkpoint_minutes == 0)
    monkeypatch.setattr(HistoryWriter, "log", log)
    train(images, recipe, killed)
    assert_same_run(whole, killed)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    images, recipe = tiny_images(8), tiny_recipe(epochs=1)
    run = run_in(tmp_path / "run", recipe)
    train(images, recipe, run)
    content, history = run.state_file.read_bytes(), run.history()
    train(images, recipe, run)
    assert run.state_file.read_bytes() == content
    assert run.history() == history


def test_two_do_not_train_in_one_folder(tmp_path: Path) -> None:
    images, recipe = tiny_images(8), tiny_recipe(epochs=1)
    run = run_in(tmp_path / "run", recipe)

    def second(*_: object) -> None:
        with pytest.raises(UserError, match="another process is training in"):
            train(images, recipe, RunFolder.open(run.path))

    train(images, recipe, run, watch=second)
    train(images, recipe, run)  # the first has ended


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    recipe = tiny_recipe()
    run = run_in(tmp_path / "run", recipe)
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(Interrupted):
            train(tiny_images(8), recipe, run)
    return run


class Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "foreign", "other network", "bare", "bomb"])
def test_a_damaged_state_is_refused_in_one_line(damage: str, interrupted: RunFolder, tmp_path: Path) -> None:
    file, trace = interrupted.state_file, tmp_path / "executed"
    good = file.read_bytes()
    if damage == "truncated":
        file.write_bytes(good[: len(good) // 2])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "text":
        file.write_text("hello")
    elif damage == "foreign":
        torch.save({"epoch": 3}, file)
    elif damage == "other network":
        state = interrupted.load_state()
        assert state is not None
        torch.save(state | {"method": {"weight": torch.zeros(3)}}, file)
    elif damage == "bare":
        torch.save({"format": 1, "network": 3}, file)
    else:
        file.write_bytes(pickle.dumps({"format": 1, "step": Bomb(trace)}))
    with pytest.raises(UserError, match=r"last\.pt (is|does)") as refusal:
        train(tiny_images(8), interrupted.recipe(), interrupted)
    assert "\n" not in str(refusal.value)
    assert not trace.exists()


def test_a_full_disk_keeps_the_previous_state(
    interrupted: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = interrupted.state_file.read_bytes()

    def no_space(state: object, part: Path) -> None:
        part.write_bytes(b"some of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", no_space)
    with pytest.raises(UserError, match=r"could not write .*last\.pt: No space left on device"):
        interrupted.save_state({"step": 99})
    assert interrupted.state_file.read_bytes() == before
    assert not list(interrupted.path.glob(".*"))


FILL_THE_DISK = """
import resource, sys, torch
from pathlib import Path
from gradmix.training import RunFolder
from gradmix.errors import UserError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    RunFolder(Path(sys.argv[1])).save_state({"weights": torch.zeros(1_000_000)})
except UserError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_file_that_cannot_grow_keeps_the_previous_state(interrupted: RunFolder) -> None:
    """As above, with torch's own writer running into a real limit."""
    before = interrupted.state_file.read_bytes()
    command = [sys.executable, "-c", FILL_THE_DISK, str(interrupted.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith(f"could not write {interrupted.state_file}"), done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert interrupted.state_file.read_bytes() == before
    assert not list(interrupted.path.glob(".*"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000  # only the other process was limited


@pytest.mark.parametrize("culprit", ["lr", "pixels"])
def test_a_loss_that_is_not_a_number_stops_the_run(
    culprit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny_recipe(log_every=1, warmup_steps=0, **({"lr": 1e30} if culprit == "lr" else {}))
    run = run_in(tmp_path / "run", recipe)
    if culprit == "pixels":
        augment = session.Augment.apply
        monkeypatch.setattr(
            session.Augment,
            "apply",
            lambda self, images, *how: augment(self, images, *how) * torch.nan,
        )
    run.save_state({"sentinel": 1})
    before = run.state_file.read_bytes()
    monkeypatch.setattr(RunFolder, "load_state", lambda self: None)
    step = 1 if culprit == "lr" else 0
    with pytest.raises(
        UserError, match=rf"the loss became (nan|inf) at step {step} \(batch of training"
    ) as e:
        train(tiny_images(8), recipe, run)
    assert "the last good state is kept" in str(e.value)
    assert run.state_file.read_bytes() == before
    assert len(run.history()) == step


def test_what_a_kill_left_in_the_middle_of_a_save_is_removed(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", tiny_recipe(max_steps=1), {})
    (run.path / ".last.pt.abc.part").write_bytes(b"half a checkpoint")
    train(tiny_images(), run.recipe(), run)
    assert not list(run.path.glob(".*"))
