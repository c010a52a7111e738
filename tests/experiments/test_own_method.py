"""One's own method as one more row: one file and its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gradmix.errors import UserError
from gradmix.experiments.own_method import own_arm
from gradmix.methods import METHODS
from gradmix.report.experiment_page import write_experiment

from .conftest import smoke_runner

CODE = '''
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from gradmix.methods import Method, Views


@dataclass(frozen=True)
class Settings:
    power: float = 2.0


class Centred(Method):
    """Cross-entropy with embeddings drawn to the origin."""

    Settings = Settings
    needs_classifier = True
    view_count = 1

    def step(self, views: Views, generator, scale=1.0):
        z = self.embed(views.v1)
        loss = F.cross_entropy(self.network.logits(z), views.labels) + 1e-3 * z.abs().pow(2).mean()
        torch.autograd.backward(scale * loss)
        return {"loss": loss.detach()}
'''


@pytest.fixture(autouse=True)
def methods_as_before() -> Iterator[None]:
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "centred.py"
    path.write_text(CODE)
    return path


def test_a_python_file_is_a_row(file: Path, tmp_path: Path) -> None:
    arm = own_arm(str(file))
    runner = smoke_runner("table2", tmp_path / "out", protocols=["mnist"], methods=["ce"], own=[arm])
    result = runner.run()
    write_experiment(result)
    assert [trial.arm for trial in result.trials] == ["ce", "centred"]
    assert result.trials[1].recipe["power"] == 2.0
    assert "| centred" in (result.folder / "result.md").read_text()


def test_its_settings_are_options(file: Path, tmp_path: Path) -> None:
    own = [own_arm(f"{file}:Centred")]
    runner = smoke_runner(
        "table2", tmp_path, protocols=["mnist"], methods=["ce"], own=own, overrides={"power": "3"}
    )
    powers = {trial.arm.name: trial.recipe.flat().get("power") for trial in runner.plan.trials}
    assert powers == {"ce": None, "centred": 3.0}


def test_changed_code_is_another_training(file: Path, tmp_path: Path) -> None:
    def key() -> str:
        own = [own_arm(str(file))]
        return smoke_runner("table2", tmp_path, protocols=["mnist"], own=own).plan.trials[-1].training

    first = key()
    assert key() == first
    file.write_text(CODE.replace("1e-3", "1e-2"))
    assert key() != first


def test_a_yaml_file_is_a_row(tmp_path: Path) -> None:
    file = tmp_path / "large-patches.yaml"
    file.write_text("label: Large patches\ngamma_max: 0.9\n")
    arm = own_arm(str(file))
    assert (arm.name, arm.label) == ("large-patches", "Large patches")
    runner = smoke_runner("table2", tmp_path, protocols=["mnist"], methods=["gradmix"], own=[arm])
    assert [t.recipe.flat().get("gamma_max") for t in runner.plan.trials] == [0.5, 0.9]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("gone.py", None, "no file .*gone.py"),
        ("empty.py", "x = 1", "has no class derived from gradmix.methods.Method"),
        ("broken.py", "1/0", "cannot be run: ZeroDivisionError"),
        ("two.py", CODE + "\nclass Other(Centred): pass\n", "several methods; say which: .*two.py:Centred"),
        ("bare.py", CODE.replace("    Settings = Settings\n", ""), "needs a class attribute Settings"),
        ("ce.py", CODE.replace("Centred", "CE"), "there is a method 'ce' already"),
        ("m.yaml", "gama_max: 1", "no recipe field .*'gama_max'; did you mean 'gamma_max'"),
        ("m.yaml", "method: gradmx", "no method 'gradmx'; did you mean 'gradmix'"),
        ("m.yaml", "- 1", "must be a list of 'field: value' lines"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, name: str, content: str | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=complaint):
        own_arm(str(tmp_path / name))


def test_a_row_of_that_name_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "gradmix.yaml").write_text("gamma_max: 0.9")
    with pytest.raises(UserError, match="table2 has a row 'gradmix' already"):
        smoke_runner("table2", tmp_path, own=[own_arm(str(tmp_path / "gradmix.yaml"))])


def test_a_class_that_is_not_there(file: Path) -> None:
    with pytest.raises(UserError, match=r"no method in .* 'Centered'; did you mean 'Centred'"):
        own_arm(f"{file}:Centered")
