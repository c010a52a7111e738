"""Differences and ranks by hand, and that they reach the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.engine.arithmetic import count_arithmetic
from gradmix.experiments.engine.plan import make_plan
from gradmix.experiments.engine.results import ExperimentResult, collect
from gradmix.experiments.engine.run import Runner
from gradmix.experiments.report.comparisons import critical_difference, measure_difference, rank_rows
from gradmix.experiments.report.page import build_page, write_experiment
from gradmix.experiments.report.tables import compare_with_paper

from .conftest import write_trial

AUROC = {  # by row and trial; the reference first
    "none": (0.70, 0.72, 0.71, 0.75),
    "random-patch": (0.71, 0.74, 0.71, 0.74),
    "gradmix": (0.73, 0.75, 0.74, 0.78),
}


@pytest.fixture
def result(tmp_path: Path) -> ExperimentResult:
    plan = make_plan(
        get_experiment("fig-mixers"),
        PRESETS["smoke"],
        protocols=["cifar10"],
        methods=list(AUROC),
        trials=range(4),
    )
    runner = Runner(plan, tmp_path)
    for trial in plan.trials:
        write_trial(runner, trial, metrics={"auroc": AUROC[trial.arm.name][trial.number]})
    return collect(plan, runner.folder)


def test_a_difference_by_hand() -> None:
    """Differences 1, 2, 3, 6: mean 3, s = √(14/3), half = 3.1824 · s / 2."""
    found = measure_difference(dict(enumerate([2.0, 4.0, 6.0, 10.0])), dict(enumerate([1.0, 2.0, 3.0, 4.0])))
    assert found is not None
    assert (found.mean, found.count) == (3.0, 4)
    half = 3.182446 * (14 / 3) ** 0.5 / 2
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), rel=1e-6)


def test_only_trials_of_both_are_compared() -> None:
    assert measure_difference({0: 1.0, 1: 2.0}, {1: 1.0, 2: 5.0}) is None
    found = measure_difference({0: 1.0, 1: 2.0, 2: 3.0}, {1: 1.0, 2: 2.0, 3: 9.0})
    assert found is not None
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)


def test_differences_are_in_the_tables(result: ExperimentResult) -> None:
    first, second = compare_with_paper(result)
    assert first.heading == "AUROC"
    assert second.heading == "AUROC: difference to none, trial by trial, with 95 % intervals"
    assert [label for label, _ in second.rows] == ["Random patch", "GradMix"]
    assert second.rows[1][1] == (("–", "+3.00 [+3.00, +3.00]"),)
    assert second.rows[0][1][0][1].startswith("+0.50 [-")
    write_experiment(result)
    assert "+3.00 [+3.00, +3.00]" in (result.folder / "result.md").read_text(encoding="utf-8")


def test_ranks_by_hand(result: ExperimentResult) -> None:
    """GradMix is always first; none and random patch share a place in trial 2, and none wins trial 3."""
    ranks = rank_rows(result, "auroc")
    assert ranks is not None
    assert ranks.cells == 4
    assert ranks.mean == {
        "none": (3 + 3 + 2.5 + 2) / 4,
        "random-patch": (2 + 2 + 2.5 + 3) / 4,
        "gradmix": 1.0,
    }
    assert ranks.critical == pytest.approx(2.343 * (3 * 4 / 24) ** 0.5, abs=1e-3)  # q of Demšar's table


@pytest.mark.parametrize(("rows", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_the_published_table(rows: int, q: float) -> None:
    assert critical_difference(rows, 6) == pytest.approx(q * (rows * (rows + 1) / 36) ** 0.5, abs=2e-3)


def test_ranks_are_drawn_where_the_experiment_asks(tmp_path: Path) -> None:
    plan = make_plan(
        get_experiment("table2"),
        PRESETS["smoke"],
        protocols=["cifar10"],
        methods=["ce", "gradmix"],
        trials=[0, 1],
    )
    runner = Runner(plan, tmp_path)
    for trial in plan.trials[:-1]:
        write_trial(runner, trial)
    assert not build_page(collect(plan, runner.folder)).figures[:-1]  # one whole cell is too few
    write_trial(runner, plan.trials[-1], metrics={"auroc": 0.9})
    figures = build_page(collect(plan, runner.folder)).figures
    assert figures[0].heading == "AUROC: mean rank of the rows"


def test_decide_gives_equal_steps_and_equal_arithmetic() -> None:
    plan = make_plan(get_experiment("fig-mixers"), PRESETS["decide"])
    assert sorted({trial.number for trial in plan.trials}) == [1, 2, 3, 4]
    assert len({trial.split_hash for trial in plan.trials}) == 4
    recipes = {trial.arm.name: trial.recipe for trial in plan.trials}

    def total(name: str) -> float:
        return count_arithmetic(recipes[name]).step * recipes[name].training.epochs

    steps = [n for n in recipes if not n.endswith(("longer", "shorter"))]
    assert {recipes[name].training.epochs for name in steps} == {120}
    for name in ("none-longer", "random-patch", "gradmix-authors-shorter", "gradmix-evidence"):
        assert total(name) == pytest.approx(total("gradmix"), rel=0.01)
    assert recipes["gradmix"].objective.lam == 1.2
    authors = recipes["gradmix-authors"].objective
    assert (authors.pairing, authors.mix_weight, authors.target) == ("symmetric", "complement", "ssl")


def test_rows_beyond_the_paper_are_no_part_of_its_preset() -> None:
    plan = make_plan(get_experiment("fig-mixers"), PRESETS["paper"])
    assert not any(trial.arm.beyond_paper for trial in plan.trials)
    assert plan.deviations == ()
    [asked] = make_plan(
        get_experiment("fig-mixers"),
        PRESETS["paper"],
        protocols=["cifar10"],
        methods=["none-longer"],
        trials=[0],
    ).trials
    assert asked.recipe.training.epochs == 900
