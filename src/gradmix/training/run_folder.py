"""The folder of one run: what was asked, what happened, and where it stands.

recipe.yaml    every setting, resolved
run.json       data, split, seed, versions, command
method.py      a copy of the user's own method, if that is what is trained
backbone.py    a copy of the user's own network, likewise
history.jsonl  one row every few steps
last.pt        the state to resume from (tensors and numbers only)
run.lock       locked by the process that trains here; else an empty file
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..errors import UserError
from ..files import try_lock, write_atomically, write_text
from ..hub_file import MODEL_FILE
from ..methods.from_file import is_method_file
from ..models.user_backbone import COPY
from ..recipe import Recipe, make_recipe, parse_values
from .backbone_copy import keep_backbone
from .method_copy import FILE, describe_method, keep_method, load_kept_method

STATE_FORMAT = 2
_READABLE_FORMATS = (1, 2)
_LOCK_TRIES = 100  # to lock a folder that others are removing


class RunFolder:
    """Reads and writes a run folder; every file but the history is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_file = path / "recipe.yaml"
        self.facts_file = path / "run.json"
        self.history_file = path / "history.jsonl"
        self.state_file = path / "last.pt"
        self.model_file = path / MODEL_FILE
        self.method_file = path / FILE
        self.backbone_file = path / COPY
        self.lock_file = path / "run.lock"
        self._holder: int | None = None  # the thread that is inside of exclusive()
        self._made_folder = False
        self._started = False  # the run in it is one that start() wrote

    @staticmethod
    def create(path: str | Path, recipe: Recipe, facts: Mapping[str, Any]) -> RunFolder:
        """Start a new run; refuse where one is already."""
        run = RunFolder(Path(path))
        with run.exclusive():
            run.start(recipe, facts)
        return run

    @staticmethod
    def open(path: str | Path) -> RunFolder:
        """Open an existing run."""
        run = RunFolder(Path(path))
        if not run.recipe_file.is_file():
            raise UserError(
                f"{path} holds no run (no recipe.yaml in it); train one with: gradmix train … --out {path}"
            )
        return run

    def start(self, recipe: Recipe, facts: Mapping[str, Any]) -> None:
        """Write down what is asked of a new run; refuse where one is already. Only in :meth:`exclusive`."""
        if self.recipe_file.exists():
            raise UserError(f"{self.path} already holds a run; go on with --resume, or choose another --out")
        self._started = True
        own = keep_method(self.path, recipe.method) | keep_backbone(self.path, recipe.model.encoder)
        write_text(self.facts_file, json.dumps(dict(facts) | own | {"versions": versions()}, indent=2) + "\n")
        # Last: its presence is what makes this a run.
        write_text(self.recipe_file, recipe.to_yaml(method=describe_method(recipe.method)))

    @contextmanager
    def rollback_on_error(self) -> Iterator[None]:
        """Take back what :meth:`start` wrote if a mistake shows in the block before anything is trained.

        Else the command, put right and given again, would be told that there is a run already.
        """
        with self.exclusive():
            try:
                yield
            except UserError:
                if self._started and not self.state_file.exists() and not self.history_file.exists():
                    self.recipe_file.unlink(missing_ok=True)
                    self.facts_file.unlink(missing_ok=True)
                    self.method_file.unlink(missing_ok=True)
                    self.backbone_file.unlink(missing_ok=True)
                    for logs in ("tensorboard", "wandb"):
                        shutil.rmtree(self.path / logs, ignore_errors=True)
                raise

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep others from training here during the block; refuse if somebody does. It may be nested.

        The folder is made for it. If the block leaves no run in it, lock file and folder go again.
        """
        if self._holder == threading.get_ident():
            yield
            return
        with ExitStack() as stack:
            tries = 1
            while not stack.enter_context(self._try_lock()):
                # Without a lock file it was another's that has just ended with nothing to keep.
                if self.lock_file.exists() or tries == _LOCK_TRIES:
                    raise UserError(f"another process is training in {self.path}")
                tries += 1
            self._holder = threading.get_ident()
            try:
                yield
            finally:
                self._holder = None
                if not self.recipe_file.exists():
                    self._remove_lock()

    @contextmanager
    def _try_lock(self) -> Iterator[bool]:
        """Yield whether the folder is locked by this process during the block; never wait."""
        try:
            self.path.mkdir(parents=True)
            self._made_folder = True
        except FileExistsError as error:
            # Nothing there is no mistake: another process has just removed the folder.
            if self.path.is_file() or (self.path.is_symlink() and not self.path.exists()):
                raise UserError(f"cannot make the folder {self.path}: {error.strerror}") from error
        except OSError as error:
            raise UserError(f"cannot make the folder {self.path}: {error.strerror}") from error
        with ExitStack() as stack:
            try:
                ours = stack.enter_context(try_lock(self.lock_file))
            except FileNotFoundError:
                ours = False
            except OSError as error:
                raise UserError(f"could not write {self.lock_file}: {error.strerror or error}") from error
            yield ours

    def _remove_lock(self) -> None:
        """Remove the lock file while it is ours, and the folder if it was made for it."""
        with suppress(OSError):  # there are other things in the folder, or the system keeps open files
            self.lock_file.unlink(missing_ok=True)
            if self._made_folder:
                self.path.rmdir()

    def recipe(self) -> Recipe:
        """Return the recipe that the run was started with."""
        values = parse_values(self.recipe_file.read_bytes(), str(self.recipe_file))
        if is_method_file(values.get("method")):
            values = load_kept_method(self.path, values, self.facts())
        return make_recipe(values)

    def facts(self) -> dict[str, Any]:
        """Return the content of run.json."""
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
        """Remove what a kill in the middle of a save left behind; only while :meth:`exclusive`."""
        for part in self.path.glob(".*.part"):
            part.unlink(missing_ok=True)

    def load_state(self) -> dict[str, Any] | None:
        """Return the last state, or None if none was saved. Nothing in the file is executed."""
        if not self.state_file.exists():
            return None
        try:
            with zipfile.ZipFile(self.state_file) as archive:  # torch itself does not look at the checksums
                if (damaged := archive.testzip()) is not None:
                    raise ValueError(f"{damaged} is not what was written")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is odd about a file that is refused does not matter
                state = torch.load(self.state_file, map_location="cpu", weights_only=True)
        except Exception as error:  # truncated, foreign or malicious: torch raises a dozen kinds
            raise UserError(
                f"{self.state_file} is damaged or not a checkpoint ({type(error).__name__}); "
                "delete it to start this run from the beginning"
            ) from error
        if not isinstance(state, dict) or state.get("format") not in _READABLE_FORMATS:
            raise UserError(
                f"{self.state_file} is not a checkpoint of this version of gradmix; delete it to start again"
            )
        return state

    def history(self) -> list[dict[str, Any]]:
        """Return the rows so far; a line that a kill cut short ends them, and one that is no row."""
        if not self.history_file.exists():
            return []
        rows = []
        for line in self.history_file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                break
            if not isinstance(row, dict) or type(row.get("step")) is not int:
                break
            rows.append(row)
        return rows

    def rewind_history(self, step: int) -> None:
        """Drop what was logged after ``step``, so that a resumed run does not log it twice."""
        if not self.history_file.exists():
            return
        kept = [row for row in self.history() if row["step"] <= step]
        write_text(self.history_file, "".join(json.dumps(row) + "\n" for row in kept))

    def append_history(self, row: Mapping[str, Any]) -> None:
        """Append a row to history.jsonl."""
        with open(self.history_file, "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")


def versions() -> dict[str, str]:
    """Return the versions and the machine, on which results depend besides recipe, seed and data."""
    return {
        "gradmix": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
