"""The folder of one run: what was asked, what happened, and where it stands.

recipe.yaml    every setting, resolved
run.json       data, split, seed, versions, command
history.jsonl  one row every few steps
last.pt        the state to resume from (tensors and numbers only)
run.lock       held by the process that trains here; else an empty file
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..atomic import write_atomically, write_text
from ..errors import UserError
from ..hub_file import MODEL_FILE
from ..locks import claimed
from .recipe import Recipe, make_recipe, parse_values

STATE_FORMAT = 1


class RunFolder:
    """Reads and writes a run folder; every file but the history is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_file = path / "recipe.yaml"
        self.facts_file = path / "run.json"
        self.history_file = path / "history.jsonl"
        self.state_file = path / "last.pt"
        self.model_file = path / MODEL_FILE
        self.lock_file = path / "run.lock"

    @staticmethod
    def create(path: str | Path, recipe: Recipe, facts: Mapping[str, Any]) -> RunFolder:
        """A new run; refused where one is already."""
        run = RunFolder(Path(path))
        if run.recipe_file.exists():
            raise UserError(f"{path} already holds a run; go on with --resume, or choose another --out")
        try:
            run.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder {path}: {error.strerror}") from error
        write_text(run.facts_file, json.dumps(dict(facts) | {"versions": versions()}, indent=2) + "\n")
        write_text(run.recipe_file, recipe.to_yaml())  # last: its presence is what makes this a run
        return run

    @staticmethod
    def open(path: str | Path) -> RunFolder:
        """An existing run."""
        run = RunFolder(Path(path))
        if not run.recipe_file.is_file():
            raise UserError(
                f"{path} holds no run (no recipe.yaml in it); train one with: gradmix train … --out {path}"
            )
        return run

    @contextmanager
    def taken_back_on_mistakes(self) -> Iterator[None]:
        """For a new run: a mistake that shows before anything is trained leaves no run behind.

        Else the command, put right and given again, would be told that there is a run already.
        """
        try:
            yield
        except UserError:
            if not self.state_file.exists() and not self.history_file.exists():
                self.recipe_file.unlink(missing_ok=True)
                self.facts_file.unlink(missing_ok=True)
                self.lock_file.unlink(missing_ok=True)
                shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
                with suppress(OSError):  # there are other things in it: not ours
                    self.path.rmdir()
            raise

    @contextmanager
    def trained_by_us(self) -> Iterator[None]:
        """Nobody else trains here during the block; refused if somebody does."""
        with claimed(self.lock_file) as ours:
            if not ours:
                raise UserError(f"another process is training in {self.path}")
            yield

    def recipe(self) -> Recipe:
        """What the run was started with."""
        return make_recipe(parse_values(self.recipe_file.read_bytes(), str(self.recipe_file)))

    def facts(self) -> dict[str, Any]:
        """What run.json says."""
        try:
            facts = json.loads(self.facts_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{self.facts_file} cannot be read: {error}") from error
        if not isinstance(facts, dict):
            raise UserError(f"{self.facts_file} is damaged: it holds no facts about a run")
        return facts

    def add_facts(self, **more: Any) -> None:
        """Put more into run.json, beside or over what is there."""
        write_text(self.facts_file, json.dumps(self.facts() | more, indent=2) + "\n")

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace ``last.pt``; if anything goes wrong the previous one stays."""
        whole = dict(state) | {"format": STATE_FORMAT}

        def write(part: Path) -> None:
            try:
                torch.save(whole, part)
            except RuntimeError as error:  # torch reports a full disk as one of these
                raise OSError(None, f"{error} (is the disk full?)") from error

        write_atomically(self.state_file, write)

    def remove_unfinished_files(self) -> None:
        """What a kill in the middle of a save left behind; only while :meth:`trained_by_us`."""
        for part in self.path.glob(".*.part"):
            part.unlink(missing_ok=True)

    def load_state(self) -> dict[str, Any] | None:
        """The last state, or None if the run never got that far. Nothing in the file is executed."""
        if not self.state_file.exists():
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is odd about a file that is refused does not matter
                state = torch.load(self.state_file, map_location="cpu", weights_only=True)
        except Exception as error:  # truncated, foreign or malicious: torch raises a dozen kinds
            raise UserError(
                f"{self.state_file} is damaged or not a checkpoint ({type(error).__name__}); "
                "delete it to start this run from the beginning"
            ) from error
        if not isinstance(state, dict) or state.get("format") != STATE_FORMAT:
            raise UserError(
                f"{self.state_file} is not a checkpoint of this version of gradmix; delete it to start again"
            )
        return state

    def history(self) -> list[dict[str, Any]]:
        """The rows so far; a last line that a kill cut short is left out."""
        if not self.history_file.exists():
            return []
        rows = []
        for line in self.history_file.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def rewind_history(self, step: int) -> None:
        """Drop what was logged after ``step``, so that a resumed run does not log it twice."""
        if not self.history_file.exists():
            return
        kept = [row for row in self.history() if row["step"] <= step]
        write_text(self.history_file, "".join(json.dumps(row) + "\n" for row in kept))

    def append_history(self, row: Mapping[str, Any]) -> None:
        """One row more of history.jsonl."""
        with open(self.history_file, "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")


def versions() -> dict[str, str]:
    """What a number depends on besides recipe, seed and data."""
    return {
        "gradmix": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
