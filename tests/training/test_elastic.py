"""torchrun itself: a worker killed in mid-epoch, a mistake told once, a stop that all agree on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradmix.training import RunFolder
from tests.training.tiny import FIELDS, make_photos

pytestmark = pytest.mark.slow
STEPS = 60
RECIPE = FIELDS | {
    "encoder": "resnet8_16",
    "epochs": 999,
    "max_steps": STEPS,
    "log_every": 1,
    "checkpoint_minutes": 0.001,
    "lr": 1e-5,  # slow enough for rounding not to grow: the runs are compared
    "lr_min": 1e-6,
    "mixer": "cutmix",  # its place is drawn, not found: no tie for the last bit to decide
}


TWO_WORKERS = ("--standalone", "--nproc-per-node", "2")


def start(
    folder: Path, *words: str, restarts: int = 0, how: tuple[str, ...] = TWO_WORKERS
) -> subprocess.Popen[str]:
    """``torchrun … -m gradmix …``."""
    launcher = [sys.executable, "-m", "torch.distributed.run", *how]
    known = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
    return subprocess.Popen(
        [*launcher, "--max-restarts", str(restarts), "-m", "gradmix", *words],
        cwd=folder,
        env=known | {"GRADMIX_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def train_words(out: str, **more: object) -> list[str]:
    fields = [word for name, value in (RECIPE | more).items() for word in (f"--{name}", str(value))]
    return ["train", "photos", "--out", out, *fields]


def said_by_gradmix(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("gradmix: ")]


def wait_for_step(process: subprocess.Popen[str], run: RunFolder, step: int) -> None:
    while len(run.history()) < step:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def children(process: subprocess.Popen[str]) -> list[str]:
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


def worker(process: subprocess.Popen[str], rank: int) -> int:
    """The process id of a worker."""
    for child in children(process):
        if f"RANK={rank}" in Path(f"/proc/{child}/environ").read_text().split("\0"):
            return int(child)
    raise AssertionError(f"no worker {rank} among {children(process)}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``photos`` and the undisturbed run ``whole``."""
    folder = tmp_path_factory.mktemp("elastic")
    make_photos(folder / "photos")
    process = start(folder, *train_words("whole"))
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert out.strip() == str(Path("whole") / "model.safetensors")  # said once
    assert err.count("2 processes") == 1
    return folder


def assert_same_history(place: Path, out: str) -> None:
    whole, ours = (RunFolder(place / name).history() for name in ("whole", out))
    assert [row["step"] for row in ours] == list(range(1, STEPS + 1))
    for row, other in zip(ours, whole, strict=True):
        assert row["loss"] == pytest.approx(other["loss"], abs=1e-3)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_is_replaced_and_the_run_finishes(rank: int, place: Path) -> None:
    out = f"killed{rank}"
    process = start(place, *train_words(out), restarts=2)
    run = RunFolder(place / out)
    wait_for_step(process, run, 20)
    os.kill(worker(process, rank), signal.SIGKILL)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert run.model_file.exists()
    assert run.facts()["steps"] == STEPS
    assert run.facts()["processes"] == 2
    assert_same_history(place, out)


def is_told_to_end(pid: int) -> bool:
    """Whether SIGTERM waits for a process (that is stopped and cannot take it)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = next(line for line in lines if line.startswith("ShdPnd"))
    return bool(int(pending.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_two_machines_meet_again_though_they_count_restarts_differently(place: Path) -> None:
    """On one a worker dies; on the other it hangs, as with nccl, and is restarted without being counted."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    how = ["--nnodes", "2", "--nproc-per-node", "1", "--local-addr", "localhost", "--rdzv-backend", "c10d"]
    how += ["--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "two-machines"]
    machines = [start(place, *train_words("two"), restarts=2, how=tuple(how)) for _ in range(2)]
    run = RunFolder(place / "two")
    wait_for_step(machines[0], run, 20)
    dies, hangs = (int(children(machine)[0]) for machine in machines)
    os.kill(hangs, signal.SIGSTOP)
    os.kill(dies, signal.SIGKILL)
    while not is_told_to_end(hangs):
        assert all(machine.poll() is None for machine in machines)
        time.sleep(0.05)
    os.kill(hangs, signal.SIGCONT)
    ended = [machine.communicate(timeout=600) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], ended
    assert run.facts()["steps"] == STEPS
    assert_same_history(place, "two")


def test_another_launch_does_not_take_the_run_over(place: Path) -> None:
    """Not even when torchrun, told of the mistake, tries again."""
    before = (place / "whole" / "last.pt").read_bytes()
    process = start(place, *train_words("whole"), restarts=1)
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0
    told = said_by_gradmix(err)
    assert told == ["gradmix: whole already holds a run; go on with --resume, or choose another --out"] * 2
    assert (place / "whole" / "last.pt").read_bytes() == before


def test_a_mistake_is_told_once(place: Path) -> None:
    process = start(place, *train_words("odd", batch_size=9))
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0
    assert len(said_by_gradmix(err)) == 1
    assert "a batch of 9 images cannot be shared equally by 2 processes" in said_by_gradmix(err)[0]
    assert "exitcode  : 2" in err
    assert not (place / "odd").exists()


def test_a_stop_saves_and_one_process_goes_on(place: Path) -> None:
    process = start(place, *train_words("stopped"))
    run = RunFolder(place / "stopped")
    wait_for_step(process, run, 10)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "go on with: gradmix train --resume stopped" in err
    done = len(run.history())
    state = run.load_state()
    assert state is not None
    assert state["step"] == done < STEPS
    words = [sys.executable, "-m", "gradmix", "train", "--resume", "--out", "stopped"]
    finished = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stderr
    assert_same_history(place, "stopped")


def test_other_commands_are_for_one_process(place: Path) -> None:
    process = start(place, "evaluate", "whole")
    _, err = process.communicate(timeout=600)
    told = said_by_gradmix(err)
    assert told == ["gradmix: gradmix evaluate works in one process; torchrun is for gradmix train"]
