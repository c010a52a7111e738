"""Results: one file per trial, and all of an experiment's together."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from ...errors import UserError
from ...files import read_tensors, write_atomically, write_text
from ..declaration import Arm, Bench
from ..paper import PaperNumbers, paper_numbers
from .deviations import Coverage
from .plan import Plan

Curve = tuple[list[float], list[float]]


@dataclass(frozen=True)
class TrialResult:
    """One trial as its file has it. ``curve`` is (steps, values), ``series`` are (x, y).

    ``code``: of the user's own rows, the hash of the file behind it. Fields with a default came later than
    the first files.
    """

    bench: str
    arm: str
    arm_label: str
    trial: int
    key: str
    training: str
    seed: int
    split_hash: str | None
    metrics: Mapping[str, float]
    series: Mapping[str, Curve]
    curve: Curve
    steps: int
    minutes: float
    images: int
    recipe: Mapping[str, Any]
    overrides: Mapping[str, Any]
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    core_minutes: float = 0.0
    code: str = ""

    @property
    def name(self) -> str:
        return f"{self.bench}.{self.arm}.{self.trial}"


class TrialFiles:
    """trials/<bench>.<arm>.<trial>.json, whole or absent; pictures beside it as safetensors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "trials"

    def write(self, result: TrialResult, pictures: Mapping[str, Tensor]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if pictures:
            tensors = {name: tensor.contiguous() for name, tensor in pictures.items()}
            write_atomically(self._pictures(result.name), lambda part: save_file(tensors, part))
        # Last: with it, the trial is done.
        write_text(self.folder / f"{result.name}.json", json.dumps(asdict(result), indent=1) + "\n")

    def read(self) -> dict[str, TrialResult]:
        """Read all finished trials, by name."""
        found = [_read_trial(file) for file in sorted(self.folder.glob("*.json"))]
        return {result.name: result for result in found}

    def read_one(self, name: str) -> TrialResult | None:
        """Read a trial, or return None if it is not finished."""
        return _read_trial(self.folder / f"{name}.json") if self.has(name) else None

    def has(self, name: str) -> bool:
        return (self.folder / f"{name}.json").is_file()

    def take_over(self, name: str, key: str, other: TrialFiles) -> bool:
        """Copy the trial ``name`` from ``other`` if it is there with this key; return whether it is."""
        found = other.read_one(name)
        if found is None or found.key != key:
            return False
        self.write(found, other.pictures(name))
        return True

    def remove(self, name: str) -> None:
        (self.folder / f"{name}.json").unlink(missing_ok=True)
        self._pictures(name).unlink(missing_ok=True)

    def pictures(self, name: str) -> dict[str, Tensor]:
        file = self._pictures(name)
        return read_tensors(file)[1] if file.is_file() else {}

    def _pictures(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"


def _read_trial(file: Path) -> TrialResult:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return TrialResult(**values | {"notes": tuple(values["notes"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{file} is damaged ({error}); delete it to do this trial again") from error


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation (of the sample; None for a single trial) over ``count`` trials."""

    mean: float
    std: float | None
    count: int


@dataclass(frozen=True)
class ExperimentResult:
    """All finished trials of an experiment in one preset, beside what the paper prints."""

    plan: Plan
    trials: tuple[TrialResult, ...]
    folder: Path
    command: str = ""
    paper: PaperNumbers = field(default_factory=PaperNumbers)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Return the declared rows that were run or asked for, then the user's own."""
        declared = self.plan.experiment.arms
        ran = {trial.arm for trial in self.trials}
        names = {arm.name for arm in declared}
        shown = [arm for arm in declared if arm.name in ran or arm in self.plan.arms]
        own = {t.arm: Arm(t.arm, t.arm_label) for t in self.trials if t.arm not in names}
        return (*shown, *own.values())

    @property
    def benches(self) -> tuple[Bench, ...]:
        """Return the benches asked for now, also where data was missing, and those done before."""
        shown = {trial.bench for trial in self.trials} | {bench.name for bench in self.plan.benches}
        return tuple(bench for bench in self.plan.experiment.benches if bench.name in shown)

    def of(self, arm: str, bench: str) -> list[TrialResult]:
        return [trial for trial in self.trials if trial.arm == arm and trial.bench == bench]

    @cached_property
    def deviations(self) -> tuple[str, ...]:
        """Say in words how what there is, or is to be, differs from the paper's."""
        there = {trial.arm for trial in self.trials} | {trial.arm.name for trial in self.plan.trials}
        known = {arm.name: arm for arm in (*self.plan.experiment.arms, *self.plan.arms)}
        arms = tuple(arm for name, arm in known.items() if name in there)
        counts = Counter((trial.bench, trial.arm) for trial in self.trials)
        return self.plan.deviations_of(Coverage(self.benches, arms, counts.values()))

    @property
    def versions(self) -> list[Mapping[str, str]]:
        """Return the program versions that the trials were made with; one entry unless they differ."""
        found: list[Mapping[str, str]] = []
        for trial in self.trials:
            if trial.versions not in found:
                found.append(trial.versions)
        return found

    def summary(self, arm: str, bench: str, metric: str) -> Summary | None:
        return summarize([t.metrics[metric] for t in self.of(arm, bench) if metric in t.metrics])

    @property
    def minutes(self) -> float:
        """Return the minutes of training; a shared training counts once."""
        return sum({trial.training: trial.minutes for trial in self.trials}.values())

    @property
    def core_minutes(self) -> float:
        """Return the same in core-minutes, which do not depend on what else the machine does."""
        return sum({trial.training: trial.core_minutes for trial in self.trials}.values())

    @property
    def missing(self) -> int:
        """Return how many trials of the plan are still to be done."""
        done = {trial.key for trial in self.trials}
        return sum(trial.key not in done for trial in self.plan.trials)

    @property
    def is_finished(self) -> bool:
        return self.missing == 0

    def to_json(self) -> dict[str, Any]:
        """Return everything but pictures."""
        experiment = self.plan.experiment
        return {
            "experiment": experiment.name,
            "title": experiment.title,
            "place": experiment.paper_item,
            "preset": self.plan.preset.name,
            "max_steps": self.plan.max_steps,
            "finished": self.is_finished,
            "command": self.command,
            "family": self.plan.family,
            "cuts": list(self.deviations),
            "left_out": dict(self.plan.left_out),
            "minutes": round(self.minutes, 2),
            "core_minutes": round(self.core_minutes, 2),
            "versions": [dict(versions) for versions in self.versions],
            "paper": {"rows": dict(self.paper.rows), "claims": list(self.paper.claims)},
            "summary": self._summarize_all(),
            "trials": [asdict(trial) for trial in self.trials],
        }

    def _summarize_all(self) -> dict[str, dict[str, dict[str, Any]]]:
        metrics = sorted({name for trial in self.trials for name in trial.metrics})
        table: dict[str, dict[str, dict[str, Any]]] = {}
        for arm in self.arms:
            for bench in self.benches:
                found = {m: self.summary(arm.name, bench.name, m) for m in metrics}
                cell = {m: asdict(s) for m, s in found.items() if s is not None}
                if cell:
                    table.setdefault(arm.name, {})[bench.name] = cell
        return table


def summarize(values: Sequence[float]) -> Summary | None:
    """Return mean and standard deviation; None without values.

    >>> summarize([1.0, 3.0])
    Summary(mean=2.0, std=1.4142135623730951, count=2)
    """
    if not values:
        return None
    std = statistics.stdev(values) if len(values) > 1 else None
    return Summary(statistics.fmean(values), std, len(values))


def collect(plan: Plan, folder: Path, command: str = "") -> ExperimentResult:
    """Read the result from the files in ``folder``."""
    trials = TrialFiles(folder).read().values()
    order = {bench.name: i for i, bench in enumerate(plan.experiment.benches)}
    ordered = sorted(trials, key=lambda t: (order.get(t.bench, len(order)), t.trial))
    return ExperimentResult(plan, tuple(ordered), folder, command, paper_numbers(plan.experiment.name))
