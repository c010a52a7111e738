"""The learning rate as a function of the step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gradmix.errors import UserError
from gradmix.recipe import TrainingSettings
from gradmix.training.schedule import learning_rate


def test_learning_rate_is_a_cosine_after_a_linear_rise() -> None:
    s = TrainingSettings(lr=0.1, lr_min=0.01, warmup_steps=4)
    total = 20
    for step in range(total + 1):
        if step < 4:
            wanted = 0.1 * (step + 1) / 5
        else:
            wanted = 0.01 + 0.09 * (1 + math.cos(math.pi * (step - 4) / 16)) / 2
        assert learning_rate(step, total, s) == pytest.approx(wanted, abs=1e-15)
    assert learning_rate(4, total, s) == 0.1
    assert learning_rate(total, total, s) == pytest.approx(0.01)
    assert learning_rate(3, 3, TrainingSettings(warmup_steps=10)) > 0  # a run shorter than its rise


def test_step_divides_at_the_milestones() -> None:
    s = TrainingSettings(lr=0.1, schedule="step", milestones=(0.3, 0.6, 0.9), gamma=0.1, warmup_steps=4)
    rates = [learning_rate(step, 100, s) for step in range(100)]
    assert rates[:4] == pytest.approx([0.02, 0.04, 0.06, 0.08])
    assert rates[4:30] == [0.1] * 26
    assert rates[30:60] == pytest.approx([0.01] * 30)
    assert rates[60:90] == pytest.approx([0.001] * 30)
    assert rates[90:] == pytest.approx([0.0001] * 10)
    shorter = [learning_rate(step, 10, replace(s, warmup_steps=0)) for step in range(10)]  # the same shape
    assert shorter == pytest.approx([0.1] * 3 + [0.01] * 3 + [0.001] * 3 + [0.0001])


def test_restarts_are_cosines_one_after_the_other() -> None:
    """Vaze et al.'s: 600 epochs, two restarts, the first 10 linear up to the cosine's own value."""
    s = TrainingSettings(lr=0.1, lr_min=1e-4, schedule="restarts", restarts=2, warmup_steps=10)

    def cosine(t: float) -> float:
        return 1e-4 + (0.1 - 1e-4) * (1 + math.cos(math.pi * t)) / 2

    for epoch in range(600):
        wanted = cosine(epoch % 200 / 200) if epoch >= 10 else cosine(10 / 200) * (epoch + 1) / 11
        assert learning_rate(epoch, 600, s) == pytest.approx(wanted), epoch
    growing = replace(s, restarts=3, cycle_growth=2.0, warmup_steps=0)
    tops = [step for step in range(150) if learning_rate(step, 150, growing) == pytest.approx(0.1)]
    assert tops == [0, 10, 30, 70]
    assert learning_rate(150, 150, growing) == pytest.approx(1e-4)
    short = [learning_rate(step, 3, s) for step in range(3)]  # shorter than its rise, which ends at lr_min
    assert short == pytest.approx([1e-4 * (step + 1) / 11 for step in range(3)])


def test_growing_cycles_can_be_cut_off() -> None:
    """ConOSR's: cycles of 10, 20, … 320 epochs are 630, of which 600 are trained."""
    fields = {"lr": 0.1, "lr_min": 1e-4, "schedule": "restarts", "restarts": 5, "cycle_growth": 2.0}
    s = TrainingSettings(**fields, schedule_stretch=1.05)  # type: ignore[arg-type]
    rates = [learning_rate(epoch, 600, s) for epoch in range(600)]
    starts = [0, 10, 30, 70, 150, 310]
    assert [epoch for epoch, rate in enumerate(rates) if rate == pytest.approx(0.1, abs=1e-12)] == starts
    for epoch, rate in enumerate(rates):
        start = max(start for start in starts if start <= epoch)
        done = (epoch - start) / (start + 10)  # each cycle is as long as all before it and 10 more
        assert rate == pytest.approx(1e-4 + (0.1 - 1e-4) * (1 + math.cos(math.pi * done)) / 2), epoch
    assert rates[-1] == pytest.approx(0.1 * 0.0241, abs=2e-5)  # ends inside the last cycle, above lr_min


@pytest.mark.parametrize("schedule", ["cosine", "step", "restarts"])
def test_a_stretched_schedule_is_the_beginning_of_a_longer_one(schedule: str) -> None:
    s = TrainingSettings(lr=0.1, schedule=schedule, warmup_steps=7)
    stretched = replace(s, schedule_stretch=1.25)
    assert [learning_rate(i, 80, stretched) for i in range(80)] == [
        learning_rate(i, 100, s) for i in range(80)
    ]
    assert learning_rate(79, 80, stretched) != learning_rate(79, 80, s)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"milestones": (0.6, 0.3)}, "milestones must be rising shares"),
        ({"milestones": (0.5, 30.0)}, "milestones must be rising shares"),
        ({"momentum": 1.0}, "momentum must lie in"),
        ({"betas": (0.9, 1.0)}, "betas must lie in"),
        ({"restarts": -1}, "restarts not negative"),
        ({"schedule_stretch": 0.9}, "schedule_stretch must be at least 1"),
        ({"schedule_stretch": float("nan")}, "schedule_stretch must be at least 1"),
    ],
)
def test_schedules_that_cannot_be(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        TrainingSettings(**fields)  # type: ignore[arg-type]
