"""gradmix train --backbone mine.py:build, and the same file for every command that opens the model."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from gradmix import OpenSetClassifier
from gradmix.batch.ray_predict import find_code
from gradmix.cli import main
from gradmix.errors import UserError
from gradmix.models.user_backbone import UserBackbone
from gradmix.recognition import load, update_model
from gradmix.training import RunFolder
from tests.cli.test_method_file import state_of, stop_after
from tests.training.tiny import CLASSES

Refused = Callable[..., str]
CODE = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU())

def other():
    return build()
"""
OPTIONS = ["--image-size", "16", "--k", "2", "--holdout", "0.25", "--false-reject", "0.3"]


@pytest.fixture(scope="module")
def made(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mine.py, and run/, trained with it on the shapes."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADMIX_CACHE", str(folder / "cache"))
        words = ["train", trained / "photos", "--backbone", f"{folder}/mine.py:build", *OPTIONS]
        assert main([*map(str, words), "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    """A copy of both, in the working directory."""
    shutil.copy(made / "mine.py", tmp_path)
    return Path(shutil.copytree(made / "run", tmp_path / "mine"))


@pytest.fixture
def given(own: Path) -> list[str]:
    return ["--backbone", "mine.py:build"]


def test_what_is_kept(own: Path) -> None:
    facts = RunFolder.open(own).facts()["backbone_file"]
    code = UserBackbone(Path("mine.py").read_bytes(), "mine.py", "build")
    assert (facts["function"], facts["layer"], facts["sha256"]) == ("build", "", code.sha256)
    assert (own / "backbone.py").read_bytes() == code.code
    header = json.loads(_header(own / "model.safetensors"))
    assert header["backbone"]["function"] == "build"
    assert header["backbone"]["sha256"] == code.sha256
    assert CODE.strip() not in json.dumps(header)
    assert header["recipe"]["encoder"] == header["network"]["encoder"] == "backbone"


def test_every_command_takes_it(own: Path, given: list[str], trained: Path, refused: Refused) -> None:
    images, other = str(trained / "test"), str(trained / "others")
    commands = {
        "predict": [images],
        "explain": [f"{images}/disc/00.png", "--out", "why"],
        "evaluate": ["--known", images, "--unknown", other, "--detector", "knn"],
        "calibrate": ["--false-reject", "0.25"],
        "discover": [other, "--out", "groups", "--min-size", "2"],
        "enroll": ["--name", "cross", f"{other}/cross/00.png"],
        "forget": ["--name", "cross"],
    }
    hint = f"--backbone {own / 'backbone.py'}:build"
    for command, words in commands.items():
        assert hint in refused(command, own, *words)
        assert main([command, str(own), *words, *given]) == 0
    assert hint in refused("push", own, "me/mine")
    assert hint in refused("export", own, "--out", "exported")
    assert not Path("exported").exists()
    # What changed it kept the network, the function's name and the hash.
    assert json.loads(_header(own / "model.safetensors"))["backbone"]["function"] == "build"
    assert load(own, "mine.py:build").class_names == CLASSES


def test_a_server_changes_such_a_model(own: Path, trained: Path) -> None:
    from gradmix.serve.live_model import LiveModel

    with pytest.raises(UserError, match="give it again: --backbone"):
        LiveModel(own)
    live = LiveModel(own, backbone="mine.py:build")
    cross = live.current.recognizer.read(trained / "others")
    live.change(lambda known: known.enroll("cross", cross))
    assert load(own, "mine.py:build").class_names == (*CLASSES, "cross")
    update_model(own, lambda known: known.forget("cross"), "mine.py:build")  # by another process
    assert live.refresh()
    assert live.current.recognizer.class_names == CLASSES


def test_answers_into_a_file(own: Path, given: list[str], trained: Path) -> None:
    assert main(["predict", str(own), str(trained / "test"), "--out", "a.csv", *given]) == 0
    rows = list(csv.DictReader(Path("a.csv").read_text().splitlines()))
    found = OpenSetClassifier.load(own, backbone="mine.py:build").predict(trained / "test")
    assert [row["label"] for row in rows] == list(found)
    # A cluster gets the code, too; a module cannot be sent.
    code = find_code(load(own, "mine.py:build"))
    assert code is not None
    assert code.code == Path("mine.py").read_bytes()
    with pytest.raises(UserError, match=r"give --backbone FILE.py:FUNCTION"):
        find_code(load(own, code.build()))


@pytest.mark.slow
def test_onnx_needs_no_code(own: Path, given: list[str], trained: Path) -> None:
    assert main(["export", str(own), "--out", "exported", *given]) == 0
    files = sorted((trained / "test").rglob("*.png"))
    command = [sys.executable, "exported/predict.py", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    labels = [json.loads(line)[1] for line in done.stdout.splitlines()]
    assert labels == list(OpenSetClassifier.load(own, "mine.py:build").predict(files))


def test_code_that_has_changed(own: Path, given: list[str], trained: Path, refused: Refused) -> None:
    predict = ("predict", own, trained / "test", *given)
    file = Path("mine.py")
    file.write_text(CODE + "# a comment\n")
    assert "mine.py is not the code that it was made with" in refused(*predict)
    assert main([*map(str, predict), "--changed-backbone"]) == 0
    file.write_text(CODE.replace("16, 3", "24, 3"))
    line = refused(*predict, "--changed-backbone")
    assert "the given backbone is not the one that it was made with: 'encoder.module.2.weight' is" in line
    file.write_text(CODE)
    assert "made with build() of mine.py, not other()" in refused(*predict[:-1], "mine.py:other")
    assert main([*map(str, predict[:-1]), "mine.py:other", "--changed-backbone"]) == 0
    assert "give --backbone too" in refused("predict", own, trained / "test", "--changed-backbone")


def test_a_change_that_was_allowed_is_recorded(own: Path, trained: Path) -> None:
    Path("mine.py").write_text(CODE + "# a comment\n")
    words = ["enroll", str(own), "--name", "cross", str(trained / "others"), "--backbone", "mine.py:build"]
    assert main([*words, "--changed-backbone"]) == 0
    code = UserBackbone(Path("mine.py").read_bytes(), "mine.py", "build")
    assert json.loads(_header(own / "model.safetensors"))["backbone"]["sha256"] == code.sha256
    assert load(own, code).class_names == (*CLASSES, "cross")
    # Given as a module, nothing can be compared, and what is recorded stays.
    update_model(own, lambda known: known.forget("cross"), code.build())
    assert json.loads(_header(own / "model.safetensors"))["backbone"]["sha256"] == code.sha256


def test_mistakes_in_the_file(trained: Path, refused: Refused) -> None:
    train = ("train", trained / "photos", "--out", "new", *OPTIONS, "--backbone")
    file = Path("mine.py")
    assert "no file mine.py to take a network from" in refused(*train, "mine.py:build")
    bad = {
        "def build(:\n": "mine.py, line 1:",
        "import nonsense_that_is_not_there\n": "mine.py cannot be run: ModuleNotFoundError",
        "x = 1\0\n": "mine.py: source code string cannot contain null bytes",
        "x = 1\n": "mine.py has no function build()",
        "def build():\n    return 3\n": "returned int, not a torch.nn.Module",
        "def build():\n    raise OSError('no weights')\n": "build() in mine.py failed: OSError: no weights",
        "from torch import nn\ndef build():\n    return nn.Linear(3, 3)\n": "cannot take images of 3 x 16",
    }
    for code, line in bad.items():
        file.write_text(code)
        assert line in refused(*train, "mine.py:build")
    file.write_text(CODE)
    assert "layer of the backbone" in refused(*train, "mine.py:build", "--backbone-layer", "9")
    # Found when the run folder is there already: it goes again, with the copy of the file.
    assert "fewer than k = 50" in refused(*train, "mine.py:build", "--k", "50")
    assert not Path("new").exists()
    if os.geteuid():  # root reads everything
        file.chmod(0)
        assert "cannot read mine.py" in refused(*train, "mine.py:build")
    assert not Path("new").exists()


def test_a_run_resumes_without_the_file(photos: Path, tmp_path: Path, refused: Refused) -> None:
    """Trained by another method, stopped and gone on with from the run's own copy: the same weights."""
    file = tmp_path / "net.py"
    file.write_text(CODE)
    words = ["train", str(photos), "--backbone", "net.py", "--recipe", "small", *OPTIONS]
    words += ["--batch-size", "12", "--epochs", "3"]
    assert main([*words, "--out", "whole"]) == 0
    assert RunFolder.open("whole").recipe().flat()["layers"] == ["3"]  # the last that gives maps
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 2)
        assert main([*words, "--out", "parts"]) == 130
    file.write_text(CODE + "# changed meanwhile\n")
    copy = "parts/backbone.py:build"
    assert f"go on with the code as it was: --resume --backbone {copy}" in refused(
        "train", "--resume", "--out", "parts"
    )
    assert f"give --backbone {copy}, or none" in refused(
        "train", "--resume", "--out", "parts", "--backbone", "net.py"
    )
    file.unlink()
    assert main(["train", "--resume", "--out", "parts"]) == 0
    whole, parts = state_of(Path("whole")), state_of(Path("parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    (Path("parts") / "backbone.py").write_text(CODE + "# tampered with\n")
    Path("parts/model.safetensors").unlink()
    assert "is not the code that the run was started with" in refused("train", "--resume", "--out", "parts")


def test_in_python(own: Path, trained: Path) -> None:
    fields = {"image_size": 16, "k": 2, "holdout": 0.25}
    made = OpenSetClassifier("frozen", backbone="mine.py:build", overrides=fields, false_reject=0.3)
    made.fit(trained / "photos").save("saved.safetensors")
    again = OpenSetClassifier.load("saved.safetensors", backbone="mine.py")
    assert list(again.predict(trained / "test")) == list(made.predict(trained / "test"))
    assert json.loads(_header(Path("saved.safetensors")))["backbone"]["function"] == "build"
    with pytest.raises(UserError, match="give the file of your own network"):
        OpenSetClassifier.load("saved.safetensors", backbone="hf:a/b")


def test_a_plain_module_is_still_a_backbone(trained: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    made = OpenSetClassifier("frozen", backbone=module, overrides={"image_size": 16, "k": 2})
    made.fit(trained / "photos").save("saved.safetensors")
    assert "function" not in json.loads(_header(Path("saved.safetensors")))["backbone"]


def _header(file: Path) -> str:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as model:
        return str(model.metadata()["gradmix"])
