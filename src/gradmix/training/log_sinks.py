"""Where rows of the history go besides history.jsonl: TensorBoard, Weights & Biases, MLflow.

A run's facts say which (``"log": {"to": ["wandb"], "wandb": ID}``), so that a resumed run appends to the same
run there. Training never depends on a service: what goes wrong in one is said once, and it is left alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import ModuleType
from typing import Any, Protocol

from ..errors import UserError, choose, first_line
from .run_folder import RunFolder

# What a module must have: a folder called wandb in the working directory can be imported, too.
_NEEDED = {"tensorboard": "__file__", "wandb": "init", "mlflow": "start_run"}
NONE = "none"
PROJECT = "gradmix"  # of Weights & Biases; the experiment of MLflow
_MOST_PARAMETERS = 100  # that MLflow takes at once


class Sink(Protocol):
    """Takes numbers by step."""

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """Take the numbers of a step."""

    def close(self, failed: bool) -> None:
        """End; ``failed``: by an error or by a stop."""


def make_log_facts(words: Sequence[str] | None) -> dict[str, Any]:
    """Return what run.json says of the sinks that were asked for, as words with commas; refuse others."""
    if words is None:
        return {}
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    for name in names:
        choose("place to log to", name, (*_NEEDED, NONE))
    if NONE in names and len(names) > 1:
        raise UserError(f"--log {NONE} goes with no other")
    return {"log": {"to": check_sinks([name for name in dict.fromkeys(names) if name != NONE])}}


def read_sinks(facts: Mapping[str, Any]) -> list[str]:
    """Return the sinks of a run: those asked for, or TensorBoard where it is installed."""
    log = facts.get("log")
    if isinstance(log, Mapping):
        return [str(name) for name in log.get("to", [])]
    return ["tensorboard"] if importlib.util.find_spec("tensorboard") else []


def check_sinks(names: Sequence[str]) -> list[str]:
    """Return the names; refuse one whose package is missing."""
    for name in names:
        _import(choose("place to log to", name, _NEEDED))
    return list(names)


def open_sinks(run: RunFolder, step: int) -> Iterator[Sink]:
    """Open the sinks of a run for rows after ``step``; say which cannot be opened, and leave it out."""
    for name in read_sinks(run.facts()):
        if name == "tensorboard":
            yield TensorBoard(run, step)
            continue
        try:
            yield _Careful(name, WeightsAndBiases(run) if name == "wandb" else MLflow(run))
        except UserError:
            raise
        except Exception as error:  # of the network, of the service, of a package of another version
            _say_stopped(name, error)


class TensorBoard:
    """Event files in the run's folder."""

    def __init__(self, run: RunFolder, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What an interrupted run wrote after the step is superseded.
        self._writer: Any = SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)

    def close(self, failed: bool) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of wandb, whose files are in the run's folder; where nobody logged in, offline: ``wandb sync``.

    Rows that a resumed run repeats are the same to the bit; wandb keeps the first.
    """

    def __init__(self, run: RunFolder) -> None:
        wandb = _import("wandb")
        known = _read_id(run, "wandb")
        key = os.environ.get("WANDB_API_KEY") or getattr(getattr(wandb, "api", None), "api_key", None)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.path.name,
            dir=str(run.path),
            config=run.recipe().flat(),
            id=known,
            resume="allow",
            mode=os.environ.get("WANDB_MODE") or ("online" if key else "offline"),  # it would ask, and wait
        )
        if known is None:
            _keep_id(run, "wandb", self._run.id)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        self._run.log(dict(row), step=step)

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class MLflow:
    """A run of MLflow, in the store that MLFLOW_TRACKING_URI names, or in MLflow's own default here."""

    def __init__(self, run: RunFolder) -> None:
        self._mlflow = mlflow = _import("mlflow")
        known = _read_id(run, "mlflow")
        if known is not None:
            mlflow.start_run(run_id=known)
            return
        if "MLFLOW_EXPERIMENT_NAME" not in os.environ and "MLFLOW_EXPERIMENT_ID" not in os.environ:
            mlflow.set_experiment(PROJECT)
        _keep_id(run, "mlflow", mlflow.start_run(run_name=run.path.name).info.run_id)
        fields = iter(run.recipe().flat().items())
        while some := dict(islice(fields, _MOST_PARAMETERS)):
            mlflow.log_params(some)

    def log(self, step: int, row: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(row), step=step)

    def close(self, failed: bool) -> None:
        self._mlflow.end_run("KILLED" if failed else "FINISHED")


class _Careful:
    """A sink that stops at its first error instead of the training."""

    def __init__(self, name: str, sink: Sink) -> None:
        self._name = name
        self._sink: Sink | None = sink

    def log(self, step: int, row: Mapping[str, float]) -> None:
        if self._sink is None:
            return
        try:
            self._sink.log(step, row)
        except Exception as error:
            self._sink = None
            _say_stopped(self._name, error)

    def close(self, failed: bool) -> None:
        if self._sink is None:
            return
        try:
            self._sink.close(failed)
        except Exception as error:
            _say_stopped(self._name, error)


def _say_stopped(name: str, error: Exception) -> None:
    warnings.warn(
        f"no more is logged to {name} ({first_line(error)}); every row is in history.jsonl", stacklevel=3
    )


def _import(name: str) -> ModuleType:
    try:
        module = importlib.import_module(name)
    except ImportError:
        module = ModuleType(name)
    if getattr(module, _NEEDED[name], None) is None:
        raise UserError(f"--log {name} needs a package that is not installed: pip install {name}")
    return module


def _read_id(run: RunFolder, name: str) -> str | None:
    found = run.facts().get("log", {}).get(name)
    return None if found is None else str(found)


def _keep_id(run: RunFolder, name: str, value: str) -> None:
    run.add_facts(log={**run.facts().get("log", {}), name: value})
