"""What is less than in the paper is said, all of it, and of what there is rather than of the last command."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.declaration import Arm
from gradmix.experiments.engine.plan import make_plan
from gradmix.experiments.engine.results import ExperimentResult, collect
from gradmix.experiments.engine.run import Runner

from .conftest import write_trial


@pytest.mark.parametrize(
    ("name", "choices", "said"),
    [
        ("table5", {}, "corrupted test images: all → 40 a class"),
        ("table5", {"max_steps": 2}, "corrupted test images: all → 8 a class"),
        ("table5", {"max_steps": 2}, "test images: all → 8 a class"),
        (
            "fig-mixers",
            {},
            "rows left out: Mixup (α = 0.2), Mixup (α = 0.5), CutMix (α = 0.2), CutMix (α = 0.5)",
        ),
        ("fig-ssl", {}, "linear probe: standard → fast"),
        ("table6", {}, "linear probe: standard → fast"),
        ("fig-ssl", {}, "queue_size: 4096 → 1024"),
        ("table2", {"overrides": {"attention_init": "random"}}, "attention_size: 224 → 112"),
        ("table4", {"methods": ["ce"]}, "rows left out: ARPL, ARPL-CS, MEDAF, GradMix"),
        ("table2", {"methods": ["ce"]}, "encoder: resnet18 → conv7_32"),
    ],
)
def test_all_that_is_cut_is_said(name: str, choices: dict[str, object], said: str) -> None:
    assert said in make_plan(get_experiment(name), PRESETS["cpu"], **choices).deviations  # type: ignore[arg-type]


def test_what_is_not_cut_is_not_said() -> None:
    cuts = " ".join(make_plan(get_experiment("table2"), PRESETS["cpu"]).deviations)
    for absent in ("attention_size", "probe", "corrupted", "rows left out", "left out"):
        assert absent not in cuts


def test_what_an_own_row_sets_hides_no_cut() -> None:
    own = Arm("small", "Small batches", {"batch_size": 32}, code="1")
    plan = make_plan(get_experiment("table2"), PRESETS["cpu"], methods=["gradmix"], own=[own])
    assert "batch_size: 256 → 128" in plan.deviations


def result_of(tmp_path: Path, **asked_last: object) -> ExperimentResult:
    """Five trials of two benches are there; then something less is asked for."""
    cpu, table2 = PRESETS["cpu"], get_experiment("table2")
    runner = Runner(
        make_plan(table2, cpu, protocols=["mnist", "svhn"], methods=["gradmix"], trials=range(5)), tmp_path
    )
    for trial in runner.plan.trials:
        write_trial(runner, trial)
    return collect(make_plan(table2, cpu, **asked_last), runner.folder)  # type: ignore[arg-type]


def test_cuts_are_those_of_what_there_is(tmp_path: Path) -> None:
    found = result_of(tmp_path, protocols=["mnist"], methods=["gradmix"], trials=[0])
    assert "trials: 5 → 1" in found.plan.deviations
    assert not [cut for cut in found.deviations if cut.startswith("trials")]
    assert "left out: CIFAR10, CIFAR+10, CIFAR+50, TinyImageNet" in found.deviations
    assert "left out: SVHN, CIFAR10, CIFAR+10, CIFAR+50, TinyImageNet" in found.plan.deviations
    assert any(cut.startswith("rows left out: Cross Entropy, OpenMax, ") for cut in found.deviations)
    assert found.to_json()["cuts"] == list(found.deviations)


def test_cells_with_fewer_trials_are_said(tmp_path: Path) -> None:
    found = result_of(tmp_path, protocols=["mnist"], methods=["gradmix"], trials=[0])
    (found.folder / "trials" / "svhn.gradmix.4.json").unlink()
    fewer = collect(found.plan, found.folder)
    assert "trials: 5 → 4 to 5" in fewer.deviations


def test_versions_that_differ_are_told_apart(tmp_path: Path) -> None:
    found = result_of(tmp_path)
    assert found.versions == [{"gradmix": "1"}]
    runner = Runner(found.plan, tmp_path)
    write_trial(runner, found.plan.trials[0], versions={"gradmix": "2"})
    assert len(collect(found.plan, found.folder).to_json()["versions"]) == 2
