"""No test reads or writes the user's cache or data."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.plan import make_plan
from gradmix.experiments.run import Runner


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "real_data" not in request.fixturenames:
        monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("GRADMIX_DATA", str(tmp_path / "no-data"))


def smoke_runner(name: str, root: Path, **choices: object) -> Runner:
    overrides = choices.get("overrides", {})
    plan = make_plan(get_experiment(name), PRESETS["smoke"], **choices)  # type: ignore[arg-type]
    return Runner(plan, root, overrides=overrides)  # type: ignore[arg-type]
