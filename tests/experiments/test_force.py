"""What is there already: not mixed with other settings, and not deleted before it can be made again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gradmix.errors import UserError
from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.declaration import Arm
from gradmix.experiments.engine.plan import make_plan
from gradmix.experiments.engine.run import Runner, describe
from gradmix.files import try_lock

from .conftest import smoke_runner, write_trial

ONE = {"protocols": ["mnist"], "methods": ["ce"]}


def mine(version: str) -> Arm:
    return Arm("mine", "Mine", {"gamma_max": 0.4}, code=version)


def own_runner(root: Path, version: str, *numbers: int) -> Runner:
    return smoke_runner(
        "table2", root, protocols=["mnist"], methods=["ce"], own=[mine(version)], trials=numbers
    )


def test_two_versions_of_an_own_row_are_not_mixed(tmp_path: Path) -> None:
    first = own_runner(tmp_path, "1", 0)
    for trial in first.plan.trials:
        write_trial(first, trial)
    with pytest.raises(UserError, match=r"holds 'mnist.mine.0' of another version of your file mine") as told:
        own_runner(tmp_path, "2", 1).list_todo()
    assert "\n" not in str(told.value)
    assert len(own_runner(tmp_path, "1", 1).list_todo()) == 2  # the same version: more trials
    assert len(smoke_runner("table2", tmp_path, **ONE, trials=[1]).list_todo()) == 1  # not asked for now


def test_a_trial_file_of_before_has_no_code(tmp_path: Path) -> None:
    runner = smoke_runner("table2", tmp_path, **ONE)
    [trial] = runner.plan.trials
    write_trial(runner, trial)
    file = runner.folder / "trials" / "mnist.ce.0.json"
    values = json.loads(file.read_text())
    del values["code"]
    file.write_text(json.dumps(values))
    assert runner.list_todo() == []


def test_where_it_runs_and_what_it_logs_is_no_other_setting(tmp_path: Path) -> None:
    first = smoke_runner("table2", tmp_path, **ONE, overrides={"log_every": "5"})
    write_trial(first, first.plan.trials[0])
    more = {"protocols": ["mnist"], "methods": ["gradmix"]}
    for fields in ({}, {"device": "cpu"}, {"checkpoint_minutes": "1", "log_every": "2"}):
        assert len(smoke_runner("table2", tmp_path, **more, overrides=fields).list_todo()) == 1
    with pytest.raises(UserError, match="with other recipe fields"):
        smoke_runner("table2", tmp_path, **more, overrides={"device": "cpu", "lr": "0.1"}).list_todo()


def done(root: Path, **choices: object) -> Runner:
    """A runner whose only trial and training seem to be there."""
    runner = smoke_runner("table2", root, **ONE, **choices)
    [trial] = runner.plan.trials
    write_trial(runner, trial)
    model = runner.store.folder(trial.training).model_file
    model.parent.mkdir(parents=True)
    model.write_bytes(b"weights")
    return runner


def is_there(runner: Runner) -> bool:
    [trial] = runner.plan.trials
    return runner.files.has(trial.name) and runner.store.is_done(trial.training)


def test_forgotten_it_is_to_be_done(tmp_path: Path) -> None:
    runner = done(tmp_path)
    assert runner.list_todo() == []
    runner.forget()
    assert not is_there(runner)
    assert len(runner.list_todo()) == 1


def test_nothing_is_forgotten_whose_data_is_gone(tmp_path: Path) -> None:
    plan = make_plan(get_experiment("table2"), PRESETS["cpu"], **ONE, trials=[0])  # type: ignore[arg-type]
    runner = Runner(plan, tmp_path, tmp_path / "no-data")
    write_trial(runner, plan.trials[0])
    with pytest.raises(UserError, match="needs data for MNIST"):
        runner.forget()
    assert runner.files.has(plan.trials[0].name)


def test_nothing_is_forgotten_that_could_not_stand_beside_the_rest(tmp_path: Path) -> None:
    runner = done(tmp_path)
    other = smoke_runner("table2", tmp_path, protocols=["mnist"], methods=["gradmix"])
    write_trial(other, other.plan.trials[0], overrides={"lr": "0.5"})
    with pytest.raises(UserError, match="with other recipe fields"):
        runner.forget()
    assert is_there(runner)


def test_nothing_is_forgotten_that_another_process_works_on(tmp_path: Path) -> None:
    runner = done(tmp_path)
    with (
        try_lock(runner.store.lock(runner.plan.trials[0].training)),
        pytest.raises(UserError, match=r"another process is at work on .*; let it end, or stop it"),
    ):
        runner.forget()
    assert is_there(runner)
    runner.forget()
    assert not is_there(runner)


def test_results_of_another_setting_can_be_forgotten(tmp_path: Path) -> None:
    runner = done(tmp_path)
    write_trial(runner, runner.plan.trials[0], key="of something else")
    runner.forget()
    assert len(runner.list_todo()) == 1


def test_a_look_before_force_counts_what_would_be_done_again(tmp_path: Path) -> None:
    runner = done(tmp_path)
    assert "all done before" in describe(runner.look())
    assert "1 trial to do, 1 training, 4 steps" in describe(replace(runner, again=True).look())
    assert is_there(runner)
