"""gradmix train --method ./mine.py: one's own method from a file, and the page that teaches it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from gradmix.cli import main
from gradmix.methods import METHODS
from gradmix.training import RunFolder, session
from tests.cli.conftest import TINY

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"
OPTIONS = [word for i, word in enumerate(TINY) if "--layers" not in TINY[max(0, i - 1) : i + 1]]


@pytest.fixture(autouse=True)
def methods_as_before() -> Iterator[None]:
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of the page docs/add-a-method.md."""
    found = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    path = tmp_path / "centreloss.py"
    path.write_text(found[1])
    return path


def state_of(run: Path) -> dict[str, torch.Tensor]:
    state = RunFolder.open(run).load_state()
    assert state is not None
    method: dict[str, torch.Tensor] = state["method"]
    return method


def stop_after(patch: pytest.MonkeyPatch, steps: int) -> None:
    done = [0]

    def counting(
        optimizer: torch.optim.Optimizer, lr: float, take: object = session.set_learning_rate
    ) -> None:
        done[0] += 1
        take(optimizer, lr)  # type: ignore[operator]

    class Requests:
        def __enter__(self) -> Callable[[], bool]:
            return lambda: done[0] == steps

        def __exit__(self, *error: object) -> None: ...

    patch.setattr(session, "set_learning_rate", counting)
    patch.setattr(session, "stop_requests", Requests)


def test_the_method_of_the_page_trains_and_its_centres_move(photos: Path, file: Path, tmp_path: Path) -> None:
    words = ["train", str(photos), "--method", str(file), "--centre-weight", "0.1", "--out", "run", *OPTIONS]
    assert main(words) == 0
    assert state_of(Path("run"))["centres"].abs().sum() > 0
    run = RunFolder.open("run")
    assert "method: method.py:CentreLoss" in run.recipe_file.read_text()
    assert run.method_file.read_bytes() == file.read_bytes()
    assert run.facts()["method_file"]["path"] == str(file)
    # Without the file, and in a process that has never heard of it.
    file.unlink()
    METHODS.pop("centreloss")
    assert run.recipe().method == "centreloss"
    assert run.recipe().flat()["centre_weight"] == 0.1
    rows = run.history()
    assert {"loss", "ce", "centre"} < rows[0].keys()


def test_stopped_moved_and_resumed(
    photos: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", str(photos), "--method", f"{file}:CentreLoss", *OPTIONS]
    assert main([*words, "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert main([*words, "--out", "run"]) == 130
    file.rename(tmp_path / "elsewhere.py")
    METHODS.pop("centreloss")
    assert main(["train", "--resume", "--out", "run"]) == 0
    whole, resumed = state_of(Path("whole")), state_of(Path("run"))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.items())


def test_a_changed_file_is_refused_unless_the_copy_is_meant(
    photos: Path, file: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert main(["train", str(photos), "--method", str(file), "--out", "run", *OPTIONS]) == 130
    file.write_text(file.read_text() + "\n# changed\n")
    complaint = refused("train", "--resume", "--out", "run")
    assert "centreloss.py has changed since run was started" in complaint
    assert "--resume --method run/method.py" in complaint
    assert "give --method run/method.py" in refused("train", "--resume", "--method", file, "--out", "run")
    assert main(["train", "--resume", "--method", "run/method.py", "--out", "run"]) == 0


def test_resuming_takes_no_other_method(run: Path, refused: Callable[..., str]) -> None:
    assert "give only its folder" in refused("train", "--resume", "--method", "ce", "--out", run)


def test_a_changed_copy_is_refused(
    photos: Path, file: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert main(["train", str(photos), "--method", str(file), "--out", "run", *OPTIONS]) == 130
    Path("run/method.py").write_text("print('other code')")
    assert "is not the code that the run was started with" in refused("train", "--resume", "--out", "run")


def test_a_recipe_names_the_file_beside_it(photos: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    file.rename(tmp_path / "recipes" / "centreloss.py")
    (tmp_path / "recipes" / "mine.yaml").write_text(
        "base: small\nmethod: centreloss.py\ncentre_weight: 0.2\n"
    )
    assert main(["train", str(photos), "--recipe", "recipes/mine.yaml", "--out", "run", *OPTIONS]) == 0
    assert RunFolder.open("run").recipe().flat()["centre_weight"] == 0.2


HIDDEN = """
        self.centres = [nn.Parameter(torch.zeros(network.feature_dim))] * self.context.num_classes
"""
MISTAKES = {
    "syntax": (lambda code: code + "\ndef broken(:\n", r"centreloss.py, line \d+: invalid syntax"),
    "raises": (lambda code: code + "\n1/0\n", "cannot be run: ZeroDivisionError: division by zero"),
    "leaves": (lambda code: code + "\nraise SystemExit(0)\n", "cannot be run: SystemExit"),
    "no method": (lambda code: "x = 1", "has no class derived from gradmix.methods.Method"),
    "two": (
        lambda code: code + "\nclass B(CentreLoss): pass\n",
        "several methods; say which: .*py:CentreLoss",
    ),
    "taken": (lambda code: code.replace("CentreLoss", "GradMix"), "there is a method 'gradmix' already"),
    "no settings": (
        lambda code: code.replace("    Settings = Settings\n", ""),
        "needs a class attribute Settings",
    ),
    "no loss": (
        lambda code: code.replace('{"loss": ', '{"los": '),
        "must return a dictionary with a tensor 'loss'",
    ),
    "no head": (lambda code: code.replace("needs_classifier = True", ""), "set needs_classifier = True"),
    "hidden": (
        lambda code: re.sub(r"\n        self.centres = .*\n", HIDDEN, code),
        r"CentreLoss: 'centres\[0\]' wants a gradient but no optimiser trains it",
    ),
    "plain tensor": (
        lambda code: code.replace("nn.Parameter(torch.zeros(", "torch.zeros(").replace(
            "feature_dim))", "feature_dim, requires_grad=True)"
        ),
        "CentreLoss: 'centres' wants a gradient but no optimiser trains it",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line(mistake: str, photos: Path, file: Path, refused: Callable[..., str]) -> None:
    change, complaint = MISTAKES[mistake]
    file.write_text(change(file.read_text()))
    assert re.search(complaint, refused("train", photos, "--method", file, "--out", "run", *OPTIONS))
    assert not Path("run").exists()


def test_a_file_that_is_not_there_is_all_that_is_said(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(photos), "--method", "gone.py", "--out", "run"]) == 2
    assert capsys.readouterr().err == "gradmix: no file gone.py to take a method from\n"


@pytest.mark.slow
def test_the_processes_of_torchrun_load_it_too(photos: Path, file: Path) -> None:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words += ["-m", "gradmix", "train", str(photos), "--method", str(file), "--out", "run", *OPTIONS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("run/run.json").read_text())["processes"] == 2
    assert state_of(Path("run"))["centres"].abs().sum() > 0
