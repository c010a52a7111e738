"""No test reads or writes the user's cache or data."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.engine.plan import Trial, make_plan
from gradmix.experiments.engine.results import TrialResult
from gradmix.experiments.engine.run import Runner


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "real_data" not in request.fixturenames:
        monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("GRADMIX_DATA", str(tmp_path / "no-data"))


def smoke_runner(name: str, root: Path, **choices: object) -> Runner:
    overrides = choices.get("overrides", {})
    plan = make_plan(get_experiment(name), PRESETS["smoke"], **choices)  # type: ignore[arg-type]
    return Runner(plan, root, overrides=overrides)  # type: ignore[arg-type]


def write_trial(runner: Runner, trial: Trial, **changed: object) -> TrialResult:
    """The file of a trial as if it had been done: nothing is trained."""
    values: dict[str, object] = {
        "bench": trial.bench.name,
        "arm": trial.arm.name,
        "arm_label": trial.arm.label,
        "trial": trial.number,
        "key": trial.key,
        "training": trial.training,
        "seed": trial.number,
        "split_hash": trial.split_hash,
        "metrics": {"auroc": 0.5},
        "series": {},
        "curve": ([1.0], [0.5]),
        "steps": 4,
        "minutes": 1.0,
        "images": 10,
        "recipe": trial.recipe.flat(),
        "overrides": dict(runner.overrides),
        "versions": {"gradmix": "1"},
        "code": trial.arm.code,
    }
    result = TrialResult(**values | changed)  # type: ignore[arg-type]
    runner.files.write(result, {})
    return result
