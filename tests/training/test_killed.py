"""Real processes, really stopped: whatever ends a run, --resume reaches the bytes of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from gradmix.training import RunFolder
from tests.training.tiny import CLASSES, FIELDS, shape_image

pytestmark = pytest.mark.slow
STEPS = 120
RECIPE = FIELDS | {"epochs": 999, "max_steps": STEPS, "log_every": 1, "checkpoint_minutes": 0.001}


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """``gradmix train`` in a process of its own."""
    environment = os.environ | {"GRADMIX_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "gradmix", "train", *words],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``photos`` and the undisturbed run ``whole``."""
    folder = tmp_path_factory.mktemp("killed")
    rng = np.random.default_rng(0)
    for kind in CLASSES:
        (folder / "photos" / kind).mkdir(parents=True)
        for i in range(8):
            Image.fromarray(shape_image(kind, rng)).save(folder / "photos" / kind / f"{i}.png")
    code, err = finish(start(folder, *train_words("whole")))
    assert code == 0, err
    return folder


def train_words(out: str) -> list[str]:
    fields = [word for name, value in RECIPE.items() for word in (f"--{name}", str(value))]
    return ["photos", "--out", out, *fields]


def assert_same_end(place: Path, out: str) -> None:
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


def test_killed_at_any_moment(place: Path) -> None:
    chance = random.Random(0)
    process = start(place, *train_words("killed"))
    run = RunFolder(place / "killed")
    for at in (chance.randrange(10, 50), chance.randrange(60, 110)):
        signal_when_at(process, run, at, signal.SIGKILL)
        assert finish(process)[0] == -signal.SIGKILL
        process = start(place, "--resume", "--out", "killed")
    code, err = finish(process)
    assert code == 0, err
    assert_same_end(place, "killed")
