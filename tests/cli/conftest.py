"""A folder of coloured shapes, and one run trained on it, shared by the tests of the commands."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradmix import progress
from gradmix.cli import main
from tests.training.tiny import CLASSES, FIELDS, shape_image

# As on a command line; the default recipe "small" gives the rest.
TINY = [word for name, value in FIELDS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
TINY += ["--holdout", "0.25", "--false-reject", "0.2"]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test reads or writes the user's cache or data, or leaves files in the working directory."""
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GRADMIX_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    yield
    progress.show(False)


def save_shapes(folder: Path, kinds: tuple[str, ...], each: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    for kind in kinds:
        (folder / kind).mkdir(parents=True)
        for i in range(each):
            Image.fromarray(shape_image(kind, rng)).save(folder / kind / f"{i:02d}.png")
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """photos/{bar,disc,square}/00.png … 11.png"""
    return save_shapes(tmp_path / "photos", CLASSES, 12)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data and a finished ``run``; not to be written to: see ``run``."""
    folder = tmp_path_factory.mktemp("trained")
    save_shapes(folder / "photos", CLASSES, 12)
    save_shapes(folder / "test", CLASSES, 4, seed=1)
    save_shapes(folder / "others", ("cross",), 6, seed=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADMIX_CACHE", str(folder / "cache"))
        assert main(["train", str(folder / "photos"), "--out", str(folder / "run"), *TINY]) == 0
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, to do with as one likes."""
    return Path(shutil.copytree(trained / "run", tmp_path / "run"))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """refused("train", …): the one line on stderr; exit code 2, nothing on stdout, no traceback."""

    def check(*words: str | Path) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        lines = [line for line in err.splitlines() if line.startswith("gradmix: ")]
        assert len(lines) == 1, err
        assert "Traceback" not in err
        return lines[0]

    return check
