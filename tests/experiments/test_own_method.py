"""One's own method as one more row: one file and its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gradmix.errors import UserError
from gradmix.experiments.engine.own_method import load_own_arm
from gradmix.experiments.report.page import write_experiment
from gradmix.methods import METHODS

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
    arm = load_own_arm(str(file))
    runner = smoke_runner("table2", tmp_path / "out", protocols=["mnist"], methods=["ce"], own=[arm])
    result = runner.run()
    write_experiment(result)
    assert [trial.arm for trial in result.trials] == ["ce", "centred"]
    assert result.trials[1].recipe["power"] == 2.0
    assert "| centred" in (result.folder / "result.md").read_text()


def test_its_settings_are_options(file: Path, tmp_path: Path) -> None:
    own = [load_own_arm(f"{file}:Centred")]
    runner = smoke_runner(
        "table2", tmp_path, protocols=["mnist"], methods=["ce"], own=own, overrides={"power": "3"}
    )
    powers = {trial.arm.name: trial.recipe.flat().get("power") for trial in runner.plan.trials}
    assert powers == {"ce": None, "centred": 3.0}


def test_changed_code_is_another_training(file: Path, tmp_path: Path) -> None:
    def key() -> str:
        own = [load_own_arm(str(file))]
        return smoke_runner("table2", tmp_path, protocols=["mnist"], own=own).plan.trials[-1].training

    first = key()
    assert key() == first
    file.write_text(CODE.replace("1e-3", "1e-2"))
    assert key() != first


def test_a_yaml_file_is_a_row(tmp_path: Path) -> None:
    file = tmp_path / "large-patches.yaml"
    file.write_text("label: Large patches\ngamma_max: 0.9\n")
    arm = load_own_arm(str(file))
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
        ("m.yaml", "seed: 3", "seed: every trial has its own, its number; choose trials with --trials"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, name: str, content: str | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=complaint):
        load_own_arm(str(tmp_path / name))


def test_a_row_of_that_name_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "gradmix.yaml").write_text("gamma_max: 0.9")
    with pytest.raises(UserError, match="table2 has a row 'gradmix' already"):
        smoke_runner("table2", tmp_path, own=[load_own_arm(str(tmp_path / "gradmix.yaml"))])


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"a/mine.yaml": "k: 5", "b/mine.yaml": "k: 7"}, "two rows of your own are called 'mine'"),
        ({"a/one.py": CODE, "b/two.py": CODE}, "two rows of your own are called 'centred'"),
        ({"a.yaml": "label: New", "b.yaml": "label: New"}, "there is a row labelled 'New' already; give b"),
        ({"a.yaml": "label: GradMix"}, "there is a row labelled 'GradMix' already; give a another label"),
        ({"openmax.yaml": "k: 5"}, "table2 has a row 'openmax' already"),
    ],
)
def test_no_two_rows_share_a_name(tmp_path: Path, files: dict[str, str], complaint: str) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=complaint):
        smoke_runner("table2", tmp_path, own=[load_own_arm(str(tmp_path / name)) for name in files])


def test_what_cannot_be_measured_is_not_trained(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="S_M is compared between arms of the method gradmix, and centred is"):
        smoke_runner("fig-area", tmp_path, own=[load_own_arm(str(file))])


def test_a_row_keeps_the_queue_it_asks_for(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text("method: moco\nqueue_size: 48\n")
    own = [load_own_arm(str(tmp_path / "long.yaml"))]
    runner = smoke_runner("fig-ssl", tmp_path, protocols=["resnet18"], methods=["moco-none"], own=own)
    assert [trial.recipe.objective.queue_size for trial in runner.plan.trials] == [32, 48]


def test_an_edited_file_is_another_version(file: Path, tmp_path: Path) -> None:
    settings = tmp_path / "m.yaml"
    settings.write_text("k: 5")
    before = [load_own_arm(str(file)).code, load_own_arm(str(settings)).code]
    file.write_text(CODE + "\n")
    settings.write_text("k: 6")
    after = [load_own_arm(str(file)).code, load_own_arm(str(settings)).code]
    assert all(before)
    assert all(a != b for a, b in zip(before, after, strict=True))


def test_a_row_in_grey_runs_beside_one_in_colour(tmp_path: Path) -> None:
    (tmp_path / "grey.yaml").write_text("channels: 1\nmixer: none\n")
    own = [load_own_arm(str(tmp_path / "grey.yaml"))]
    result = smoke_runner("table2", tmp_path, protocols=["cifar10"], methods=["ce"], own=own).run()
    assert [trial.recipe["channels"] for trial in result.trials] == [3, 1]


def test_a_class_that_is_not_there(file: Path) -> None:
    with pytest.raises(UserError, match=r"no method in .* 'Centered'; did you mean 'Centred'"):
        load_own_arm(f"{file}:Centered")
