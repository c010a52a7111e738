"""How long it will take: timed once a kind of training, in proportion to steps."""

from __future__ import annotations

import pytest

from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.engine import estimate
from gradmix.experiments.engine.estimate import (
    Duration,
    Workload,
    estimate_durations,
    get_step_kind,
    measure_step,
)
from gradmix.experiments.engine.plan import make_plan
from gradmix.experiments.images import GeneratedImages
from gradmix.methods import METHODS
from gradmix.training import Recipe


def recipes(*arms: str) -> list[Recipe]:
    plan = make_plan(get_experiment("fig-mixers"), PRESETS["smoke"], protocols=["cifar10"], methods=arms)
    return [trial.recipe for trial in plan.trials]


def test_arms_that_cost_the_same_are_of_one_kind() -> None:
    none, weak, strong = recipes("none", "mixup-0.2", "mixup-1.0")
    assert {get_step_kind(weak), get_step_kind(strong)} == {get_step_kind(weak)}
    assert len({get_step_kind(weak), get_step_kind(none)}) == 2


def test_a_kind_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []

    def one_second(recipe: Recipe, images: object) -> Duration:
        timed.append(recipe)
        return Duration(1.0, 2.0)

    monkeypatch.setattr(estimate, "measure_step", one_second)
    found = GeneratedImages().load_trial_data(get_experiment("table2").benches[2].data, 0, 16, 3).train
    weak, strong = recipes("mixup-0.2", "mixup-1.0")
    work = {"a": Workload(weak, 10, found), "b": Workload(strong, 20, found)}
    assert estimate_durations(work) == {"a": Duration(10.0, 20.0), "b": Duration(20.0, 40.0)}
    assert len(timed) == 1


def test_a_step_takes_some_time() -> None:
    found = GeneratedImages().load_trial_data(get_experiment("table2").benches[2].data, 0, 16, 3).train
    [recipe] = recipes("none")
    took = measure_step(recipe, found)
    assert 0 < took.seconds < 60
    assert took.core_seconds > 0


def test_what_is_prepared_between_stages_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """OSRCI's images would take hours in the recipe of the paper."""
    plan = make_plan(get_experiment("table2"), PRESETS["smoke"], protocols=["cifar10"], methods=["osrci"])
    recipe = plan.trials[0].recipe
    views = recipe.views
    data = GeneratedImages().load_trial_data(plan.trials[0].data, 0, views.image_size, views.channels)
    monkeypatch.setattr(METHODS["osrci"], "make_unknown", lambda *_: pytest.fail("it is made"))
    assert measure_step(recipe, data.train).seconds > 0
