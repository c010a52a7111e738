"""Trainings and trials that were recorded by earlier versions are found again: their keys must not change."""

from __future__ import annotations

import pytest

from gradmix.experiments import EXPERIMENTS, PRESETS
from gradmix.experiments.engine.plan import make_plan


@pytest.mark.parametrize(
    ("table", "preset", "trial", "training", "key"),
    [
        ("table2", "paper", "cifar10.ce.0", "d49baf581b159cd8", "434bbf340761393c"),
        ("table2", "paper", "cifar10.gradmix.0", "b208fb2f5eea1ca3", "4995fab4e79459b0"),
        ("table1", "paper", "cifar10.ce+ssl.0", "5f5ea1b9e9bc2188", "f7a666cc08eb89bc"),
        ("table1", "paper", "cifar10.supcon+ssl.0", "f6df4ec59de58090", "dd5042ffe17fea8a"),
        # Of the budget of arithmetic: the number of steps that is counted is in the key, on every machine.
        ("table2", "cpu", "cifar10.ce.0", "ec1f20af22242cf4", "9ebcb7bb8ee3f51a"),
        ("table2", "cpu", "cifar10.gradmix.0", "deb5d9d3c4e5f064", "50ee4735d8843825"),
        ("table1", "cpu", "cifar10.supcon+ssl.0", "e851e18200065d01", "613dd0bf35596eed"),
    ],
)
def test_keys_of_recorded_trials(table: str, preset: str, trial: str, training: str, key: str) -> None:
    method = trial.split(".")[1]
    plan = make_plan(EXPERIMENTS[table], PRESETS[preset], protocols=["cifar10"], methods=[method], trials=[0])
    assert {t.name: (t.training, t.key) for t in plan.trials} == {trial: (training, key)}


def test_one_training_and_two_scores_are_two_trials() -> None:
    plan = make_plan(
        EXPERIMENTS["table2"], PRESETS["cpu"], protocols=["cifar10"], methods=["ce", "openmax"], trials=[0]
    )
    ce, openmax = plan.trials
    assert ce.training == openmax.training
    assert ce.key != openmax.key
