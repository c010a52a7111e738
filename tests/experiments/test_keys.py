"""Trainings and trials that were recorded by earlier versions are found again: their keys must not change."""

from __future__ import annotations

import pytest

from gradmix.experiments import EXPERIMENTS, PRESETS
from gradmix.experiments.engine.plan import make_plan


@pytest.mark.parametrize(
    ("table", "preset", "trial", "training", "key"),
    [
        ("table2", "cpu", "cifar10.ce.0", "c60b1ab9dda8934a", "5888b48a17a1b776"),
        ("table2", "cpu", "cifar10.gradmix.0", "26485b7faf1007fb", "491f23fae55c310b"),
        ("table2", "paper", "cifar10.gradmix.0", "b208fb2f5eea1ca3", "4995fab4e79459b0"),
        ("table1", "cpu", "cifar10.ce+ssl.0", "073087d84246162e", "078434d5982ebe86"),
        ("table1", "cpu", "cifar10.supcon+ssl.0", "e6141cce903a12de", "0681e91c19d97746"),
    ],
)
def test_keys_of_version_0_1(table: str, preset: str, trial: str, training: str, key: str) -> None:
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
