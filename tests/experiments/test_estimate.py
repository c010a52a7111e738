"""How long it will take: timed once a kind of training, in proportion to steps."""

from __future__ import annotations

import pytest

from gradmix.experiments import PRESETS, estimate, get_experiment
from gradmix.experiments.estimate import Workload, kind_of, seconds_of, seconds_per_step
from gradmix.experiments.images import GeneratedImages
from gradmix.experiments.plan import make_plan
from gradmix.training import Recipe


def recipes(*arms: str) -> list[Recipe]:
    plan = make_plan(get_experiment("fig-mixers"), PRESETS["smoke"], protocols=["cifar10"], methods=arms)
    return [trial.recipe for trial in plan.trials]


def test_arms_that_cost_the_same_are_of_one_kind() -> None:
    none, weak, strong = recipes("none", "mixup-0.2", "mixup-1.0")
    assert {kind_of(weak), kind_of(strong)} == {kind_of(weak)}
    assert len({kind_of(weak), kind_of(none)}) == 2


def test_a_kind_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []

    def one_second(recipe: Recipe, images: object) -> float:
        timed.append(recipe)
        return 1.0

    monkeypatch.setattr(estimate, "seconds_per_step", one_second)
    found = GeneratedImages().material(get_experiment("table2").benches[2].data, 0, 16, 3).train
    weak, strong = recipes("mixup-0.2", "mixup-1.0")
    work = {"a": Workload(weak, 10, found), "b": Workload(strong, 20, found)}
    assert seconds_of(work) == {"a": 10.0, "b": 20.0}
    assert len(timed) == 1


def test_a_step_takes_some_time() -> None:
    found = GeneratedImages().material(get_experiment("table2").benches[2].data, 0, 16, 3).train
    [recipe] = recipes("none")
    assert 0 < seconds_per_step(recipe, found) < 60
