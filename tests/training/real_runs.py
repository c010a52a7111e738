"""``gradmix train`` in processes of its own, on a small folder of photos, and its undisturbed outcome."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from gradmix.training import RunFolder
from tests.training.tiny import FIELDS

STEPS = 60
RECIPE = FIELDS | {"epochs": 999, "max_steps": STEPS, "log_every": 1, "checkpoint_minutes": 0.0}


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"GRADMIX_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


def start(folder: Path, *words: str, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    """``gradmix train`` in a process of its own, which calls ``before`` first."""
    return subprocess.Popen(
        [sys.executable, "-m", "gradmix", "train", *words],
        cwd=folder,
        env=environment(folder),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=before,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=600)
    return process.returncode, err


def steps_logged(run: RunFolder) -> int:
    return len(run.history_file.read_text().splitlines()) if run.history_file.exists() else 0


def signal_when_at(process: subprocess.Popen[str], run: RunFolder, step: int, number: int) -> None:
    while steps_logged(run) < step:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(number)


def train_words(out: str | Path) -> list[str]:
    fields = [word for name, value in RECIPE.items() for word in (f"--{name}", str(value))]
    return ["photos", "--out", str(out), *fields]


def assert_same_end(place: Path, out: str) -> None:
    """The model of the run ``out`` and its history are those of the undisturbed run, bit for bit."""
    whole, ours = (load_file(place / name / "model.safetensors") for name in ("whole", out))
    assert whole.keys() == ours.keys()
    for name, value in whole.items():
        assert torch.equal(value, ours[name]), name
    rows = [
        [{k: v for k, v in row.items() if k != "minutes"} for row in RunFolder(place / name).history()]
        for name in ("whole", out)
    ]
    assert len(rows[0]) == STEPS
    assert rows[0] == rows[1]
