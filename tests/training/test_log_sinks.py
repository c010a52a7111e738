"""Weights & Biases and MLflow, by small modules that take the same calls and write them down."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gradmix.errors import UserError
from gradmix.training import Interrupted, RunFolder, train
from gradmix.training.log_sinks import make_log_facts, read_sinks
from tests.training.tiny import tiny_images, tiny_recipe

VARIABLES = ("WANDB_MODE", "WANDB_API_KEY", "WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID")


class FakeWandb(ModuleType):
    """The calls of wandb that are used; ``fails`` names one that raises."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: list[dict[str, Any]] = []
        self.fails = ""
        self.api = SimpleNamespace(api_key=None)

    def init(self, **settings: Any) -> SimpleNamespace:
        if self.fails == "init":
            raise OSError("no network\nat all")
        run: dict[str, Any] = {"settings": settings, "rows": [], "end": None}
        self.runs.append(run)

        def log(row: dict[str, float], step: int) -> None:
            if self.fails == "log":
                raise ConnectionError("gone")
            run["rows"].append((step, row))

        def finish(exit_code: int) -> None:
            run["end"] = exit_code

        return SimpleNamespace(id=settings["id"] or f"id{len(self.runs)}", log=log, finish=finish)


class FakeMLflow(ModuleType):
    def __init__(self) -> None:
        super().__init__("mlflow")
        self.calls: list[tuple[Any, ...]] = []

    def set_experiment(self, name: str) -> None:
        self.calls.append(("experiment", name))

    def start_run(self, run_id: str | None = None, run_name: str | None = None) -> SimpleNamespace:
        self.calls.append(("start", run_id, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "abc"))

    def log_params(self, values: dict[str, Any]) -> None:
        assert len(values) <= 100
        self.calls.append(("params", values))

    def log_metrics(self, values: dict[str, float], step: int) -> None:
        assert all(isinstance(value, float) for value in values.values())
        self.calls.append(("metrics", step, values))

    def end_run(self, status: str) -> None:
        self.calls.append(("end", status))


@pytest.fixture(autouse=True)
def nobody_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GRADMIX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMLflow:
    fake = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradmix.training import session

    batches = session._batches

    def some(n: int, size: int, seed: int, first: int, total: int) -> Iterator[Any]:
        yield from batches(n, size, seed, first, min(step, total))
        raise Interrupted(step, total)

    monkeypatch.setattr(session, "_batches", some)


RECIPE = {"epochs": 1, "log_every": 1}


def start(folder: Path, *names: str) -> RunFolder:
    return RunFolder.create(folder, tiny_recipe(**RECIPE), make_log_facts(names))


def test_wandb_gets_every_row_and_the_recipe(tmp_path: Path, wandb: FakeWandb) -> None:
    run = start(tmp_path / "run", "wandb")
    train(tiny_images(8), tiny_recipe(**RECIPE), run)
    (found,) = wandb.runs
    settings = found["settings"]
    assert settings["config"] == run.recipe().flat()
    assert (settings["project"], settings["name"], settings["dir"]) == ("gradmix", "run", str(run.path))
    assert settings["mode"] == "offline"  # nobody logged in: it must not ask, and wait for an answer
    expected = [
        (row["step"], {k: v for k, v in row.items() if k not in ("step", "stage")}) for row in run.history()
    ]
    assert found["rows"] == expected
    assert len(expected) > 1
    assert found["end"] == 0
    assert json.loads(run.facts_file.read_text())["log"] == {"to": ["wandb"], "wandb": "id1"}
    assert not (run.path / "tensorboard").exists()  # only what was asked for


@pytest.mark.parametrize(
    ("variables", "key", "mode"),
    [
        ({"WANDB_API_KEY": "x"}, None, "online"),
        ({}, "from wandb login", "online"),
        ({"WANDB_MODE": "disabled", "WANDB_API_KEY": "x"}, None, "disabled"),
    ],
)
def test_wandb_goes_online_only_for_someone(
    tmp_path: Path,
    wandb: FakeWandb,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    key: str | None,
    mode: str,
) -> None:
    from gradmix.training.history_writer import HistoryWriter

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    wandb.api.api_key = key
    with HistoryWriter(start(tmp_path / "run", "wandb")):
        pass
    assert wandb.runs[0]["settings"]["mode"] == mode


def test_a_resumed_run_appends_to_the_same_runs(
    tmp_path: Path, wandb: FakeWandb, mlflow: FakeMLflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(tmp_path / "run", "wandb,mlflow")
    with monkeypatch.context() as patch:
        stop_at(1, patch)
        with pytest.raises(Interrupted):
            train(tiny_images(8), tiny_recipe(**RECIPE), run)
    assert wandb.runs[0]["end"] == 1
    assert mlflow.calls[-1] == ("end", "KILLED")
    train(tiny_images(8), tiny_recipe(**RECIPE), run)
    first, second = wandb.runs
    assert first["settings"]["id"] is None
    assert second["settings"]["id"] == "id1"
    assert second["settings"]["resume"] == "allow"
    kinds = [call[0] for call in mlflow.calls]
    assert mlflow.calls[:2] == [("experiment", "gradmix"), ("start", None, "run")]
    assert kinds.count("params") == 1  # of a new run only: they cannot change
    assert ("start", "abc", None) in mlflow.calls
    assert mlflow.calls[-1] == ("end", "FINISHED")
    steps = [call[1] for call in mlflow.calls if call[0] == "metrics"]
    assert steps == [row["step"] for row in run.history()] or steps[1:] == [r["step"] for r in run.history()]


@pytest.mark.parametrize("fails", ["init", "log"])
def test_a_service_that_fails_does_not_stop_the_training(
    fails: str, tmp_path: Path, wandb: FakeWandb
) -> None:
    wandb.fails = fails
    run = start(tmp_path / "run", "wandb")
    with pytest.warns(UserWarning, match="no more is logged to wandb") as said:
        train(tiny_images(8), tiny_recipe(**RECIPE), run)
    assert len([w for w in said if "wandb" in str(w.message)]) == 1
    assert len(run.history()) > 1


def test_what_cannot_be_logged_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(
        UserError, match="--log wandb needs a package that is not installed: pip install wandb"
    ):
        make_log_facts(["wandb"])
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))  # a folder of that name, no package
    with pytest.raises(UserError, match="pip install mlflow"):
        make_log_facts(["mlflow"])
    with pytest.raises(UserError, match="did you mean 'tensorboard'"):
        make_log_facts(["tensorbord"])
    with pytest.raises(UserError, match="goes with no other"):
        make_log_facts(["none", "tensorboard"])


def test_which_sinks_a_run_has(wandb: FakeWandb, mlflow: FakeMLflow) -> None:
    assert make_log_facts(None) == {}
    assert read_sinks(make_log_facts(["none"])) == []
    assert read_sinks(make_log_facts(["wandb, mlflow", "wandb"])) == ["wandb", "mlflow"]
    assert read_sinks({}) in ([], ["tensorboard"])


def test_the_command_refuses_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gradmix.cli import main

    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "photos", "--out", "run", "--log", "wandb"]) == 2
    assert capsys.readouterr().err == (
        "gradmix: --log wandb needs a package that is not installed: pip install wandb\n"
    )
    assert not Path("run").exists()
