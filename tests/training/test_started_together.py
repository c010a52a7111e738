"""Trainings that real processes start in one folder at the same moment: one trains, the others do no harm."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from gradmix.cli import main
from gradmix.recognition import load
from gradmix.training import RunFolder
from tests.training.tiny import FIELDS, make_photos

STARTS = 24
PROCESSES = 3
Outcome = tuple[int, int, list[str]]  # the start, the exit code, the complaints

_FIELDS = FIELDS | {"epochs": 999, "max_steps": 3}
_WORDS = [word for name, value in _FIELDS.items() for word in (f"--{name}", str(value))]


def _start_again_and_again(folder: Path, words: list[str], barrier: Any, outcomes: Any) -> None:
    os.chdir(folder)
    os.environ["GRADMIX_CACHE"] = str(folder / "cache")
    for start in range(STARTS):
        said = io.StringIO()
        barrier.wait(300)
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = main([word.format(start=start) for word in words])
        complaints = [line for line in said.getvalue().splitlines() if line.startswith("gradmix: ")]
        outcomes.put((start, code, complaints))


def _outcomes(folder: Path, *commands: list[str]) -> list[list[Outcome]]:
    """What came of each start of the commands, every one in a process of its own, all at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gradmix.recognition", "gradmix.cli.train", "pytest"])
    barrier, outcomes = context.Barrier(len(commands)), context.SimpleQueue()
    processes = [
        context.Process(target=_start_again_and_again, args=(folder, words, barrier, outcomes))
        for words in commands
    ]
    for process in processes:
        process.start()
    found: list[Outcome] = [outcomes.get() for _ in range(STARTS * len(commands))]
    for process in processes:
        process.join(60)
    return [[outcome for outcome in found if outcome[0] == start] for start in range(STARTS)]


def _assert_whole(out: Path) -> None:
    run = RunFolder.open(out)
    assert run.recipe().training.max_steps == 3
    assert run.facts()["steps"] == 3
    assert load(out).class_names == ("bar", "disc", "square")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["small", "frozen"])
def test_one_trains_to_the_end_and_the_others_are_refused(recipe: str, tmp_path: Path) -> None:
    make_photos(tmp_path / "photos")
    words = ["train", "photos", "--out", "run{start}"]
    words += _WORDS if recipe == "small" else ["--recipe", "frozen", "--image-size", "16"]
    for start, outcomes in enumerate(_outcomes(tmp_path, *[words] * PROCESSES)):
        out = f"run{start}"
        assert sorted(code for _, code, _ in outcomes) == [0, 2, 2], outcomes
        for _, code, complaints in outcomes:
            if code:
                (line,) = complaints
                refused = f"gradmix: another process is training in {out}"
                # Of a process that looks when the other has written its recipe.
                late = f"gradmix: {out} already holds a run; go on with --resume, or choose another --out"
                assert line in (refused, late)
        if recipe == "small":
            _assert_whole(tmp_path / out)
        else:
            assert load(tmp_path / out).class_names == ("bar", "disc", "square")
        names = {file.name for file in (tmp_path / out).iterdir()}
        assert {"recipe.yaml", "run.json", "run.lock", "model.safetensors"} <= names


@pytest.mark.slow
def test_a_mistake_takes_back_its_own_run_only(tmp_path: Path) -> None:
    """One of the commands names a layer that is not there: it never spoils the run of the other."""
    make_photos(tmp_path / "photos")
    right = ["train", "photos", "--out", "run{start}", *_WORDS]
    wrong = [*right, "--layers", "conv9_9"]
    for start, outcomes in enumerate(_outcomes(tmp_path, right, wrong)):
        out = tmp_path / f"run{start}"
        codes = sorted(code for _, code, _ in outcomes)
        assert codes in ([0, 2], [2, 2]), outcomes
        assert all(len(complaints) == 1 for _, code, complaints in outcomes if code), outcomes
        if codes == [0, 2]:
            _assert_whole(out)
        else:  # the wrong one was there first
            assert not (out / "recipe.yaml").exists()
            assert not (out / "run.json").exists()
