"""``gradmix predict --out`` in real processes, killed at any moment; and how much memory it takes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradmix.batch import Inputs, predict_to_file
from tests.forked import ForkServer, fork_server
from tests.processes import peak_megabytes

pytestmark = pytest.mark.slow
SEED = 0  # of the moments; any other must do as well
FEW, MANY = 2_000, 20_000
MORE_THAN_FEW = 30  # megabytes: names of 18,000 files are 2, their pixels 14, their answers as objects 10


def images(folder: Path, number: int, side: int = 16) -> Path:
    """PNGs, hard links to a few; every hundredth cannot be read."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(number):
        file = folder / f"{i:06}.png"
        if i < 10:
            Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)).save(file)
        elif i % 100 == 50:
            file.write_text("no image")
        else:
            os.link(folder / f"{i % 10:06}.png", file)
    return folder


# Its work is on disk after every batch instead of every second: a fast machine needs few seconds for all.
EAGER = """
import sys
from gradmix.cli import main
from gradmix.batch import part_file
part_file._SECONDS_BETWEEN_SYNCS = -1.0
sys.exit(main(["predict", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with fork_server(tmp_path_factory.mktemp("server")) as server:
        yield server


def journal_bytes(out: str) -> str:
    try:
        return Path(f"{out}.part.json").read_text()
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize(("out", "kills"), [("a.csv", 8), ("a.parquet", 4)])
def test_killed_at_random_moments_it_ends_in_the_same_bytes(
    trained: Path, tmp_path: Path, out: str, kills: int, server: ForkServer
) -> None:
    folder = images(tmp_path / "images", 30_000)
    whole = tmp_path / f"whole{Path(out).suffix}"
    process = server.start(trained / "run", folder, "--out", whole, code=EAGER)
    _, err = process.communicate()
    assert process.returncode == 0, err
    chance, killed_at_work = random.Random(SEED), 0
    for _ in range(kills):
        before = journal_bytes(out)
        process = server.start(trained / "run", folder, "--out", out, code=EAGER)
        if chance.random() < 0.75:  # most of them while it works, some while it starts or lists
            while journal_bytes(out) == before and process.poll() is None:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.05))
        else:
            time.sleep(chance.uniform(0, 1))
        process.kill()
        process.communicate()
        if process.returncode == 0:  # it was quicker
            break
        killed_at_work += journal_bytes(out) != before
        assert not Path(out).exists()
    assert killed_at_work >= 2
    if not Path(out).exists():
        process = server.start(trained / "run", folder, "--out", out, code=EAGER)
        _, err = process.communicate()
        assert process.returncode == 0, err
    assert Path(out).read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("*.part*"))


def test_a_kill_while_the_parquet_file_is_made(trained: Path, tmp_path: Path) -> None:
    folder = images(tmp_path / "images", 300)
    predict_to_file(trained / "run", Inputs.from_paths([folder]), tmp_path / "whole.parquet")
    probe = (
        "import os, sys; from pathlib import Path\n"
        "from gradmix.batch import Inputs, predict_file\n"
        "def half(lines, out):\n"
        "    Path(out).write_bytes(b'PAR1 and so on'); os.kill(os.getpid(), 9)\n"
        "predict_file.write_parquet = half\n"
        "predict_file.predict_to_file(sys.argv[1], Inputs.from_paths([Path(sys.argv[2])]), Path('a.parquet'))"
    )
    assert subprocess.run([sys.executable, "-c", probe, trained / "run", folder]).returncode == -9
    assert not Path("a.parquet").exists()
    summary = predict_to_file(trained / "run", Inputs.from_paths([folder]), Path("a.parquet"))
    assert summary.resumed == 300
    assert Path("a.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not list(tmp_path.glob("*.part*"))


def predict_and_measure(run: Path, folder: Path, out: str) -> float:
    """The most memory that was resident at any moment."""
    words = [sys.executable, "-m", "gradmix", "predict", str(run), str(folder), "--out", out]
    return peak_megabytes(words, {"OMP_NUM_THREADS": "1"})


def test_memory_does_not_grow_with_the_number_of_images(trained: Path, tmp_path: Path) -> None:
    few = predict_and_measure(trained / "run", images(tmp_path / "few", FEW, side=100), "few.csv")
    many = predict_and_measure(trained / "run", images(tmp_path / "many", MANY, side=100), "many.csv")
    print(f"peak of {FEW} images {few:.0f} MB, of {MANY} {many:.0f} MB")
    assert many < few + MORE_THAN_FEW, (few, many)
