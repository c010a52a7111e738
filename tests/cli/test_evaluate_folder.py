"""Models from anywhere, on a folder of known and unknown images, with the answer in the first line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gradmix.cli import main
from gradmix.recognition import load, save
from tests.cli.conftest import TINY, save_shapes
from tests.training.tiny import CLASSES

Refused = Callable[..., str]


@pytest.fixture
def mixed(trained: Path, tmp_path: Path) -> Path:
    """mixed/train, and mixed/test with the known classes, unknown/ and a class of another name."""
    folder = tmp_path / "mixed"
    shutil.copytree(trained / "photos", folder / "train")
    shutil.copytree(trained / "test", folder / "test")
    shutil.copytree(trained / "others" / "cross", folder / "test" / "unknown" / "deeper")
    save_shapes(folder / "test", ("cross",), 2, seed=9)
    return folder


def numbers(line: str) -> list[float]:
    return [float(found) for found in re.findall(r"[\d.]+", line)]


def expected(run: Path, test: Path) -> str:
    """The first line, from the model's own answers to one image after the other."""
    model = load(run)
    known = [(kind, file) for kind in CLASSES for file in sorted((test / kind).iterdir())]
    foreign = [
        file for folder in test.iterdir() if folder.name not in CLASSES for file in folder.rglob("*.png")
    ]
    said = [model.predict(model.read(file)).names()[0] for _, file in known]
    accepted = sum(name != "unknown" for name in said)
    right = sum(name == kind for name, (kind, _) in zip(said, known, strict=True))
    rejected = sum(model.predict(model.read(file)).names() == ["unknown"] for file in foreign)
    return (
        f"known images accepted: {100 * accepted / len(known):.1f} % ({accepted} of {len(known)}), "
        f"named right {100 * right / len(known):.1f} %; unknown images rejected: "
        f"{100 * rejected / len(foreign):.1f} % "
        f"({rejected} of {len(foreign)})"
    )


def test_a_folder_with_test_and_unknown(mixed: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), str(mixed)]) == 0
    out, err = capsys.readouterr()
    first, blank, heading, *_ = out.splitlines()
    assert first == expected(run, mixed / "test")
    assert numbers(first)[-1] == 8  # six in unknown/deeper, two crosses
    assert not blank
    assert "AUROC" in heading
    assert f"note: unknown in {mixed / 'test'}: cross, unknown" in err
    found = json.loads((run / "evaluation.json").read_text())
    assert (found["known test images"], found["unknown test images"]) == (12, 8)
    assert found["answers"] == first
    assert found["test"] == str(mixed / "test")


def test_a_folder_without_parts_is_taken_whole(
    mixed: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(mixed / "test" / "disc")
    assert main(["evaluate", str(run), str(mixed / "test"), "--detector", "knn"]) == 0
    out, err = capsys.readouterr()
    assert " of 8), named right" in out
    assert "has no images of disc" in err


def test_a_run_knows_the_test_folder_of_its_own_data(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(mixed), "--out", "own", *TINY, "--max-steps", "1"]) == 0
    assert "measure with: gradmix evaluate own\n" in capsys.readouterr().err
    assert main(["evaluate", "own", "--detector", "knn"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == expected(Path("own"), mixed / "test")


def test_other_unknown_images_in_place_of_the_folders_own(
    mixed: Path, trained: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = ["--unknown", f"a={trained / 'others'}", "--unknown", f"b={mixed / 'test' / 'cross'}"]
    assert main(["evaluate", str(run), str(mixed), *unknown, "--detector", "knn"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert re.search(r"unknown images rejected: [\d.]+ % \(\d of 8: a [\d.]+ %, b [\d.]+ %\)$", first), first


def test_without_unknown_images_there_is_one_line(
    mixed: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = expected(run, mixed / "test").partition(";")[0]
    shutil.rmtree(mixed / "test" / "unknown")
    shutil.rmtree(mixed / "test" / "cross")
    assert main(["evaluate", str(run), str(mixed)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{whole}\n"
    assert "no unknown images" in err
    assert not (run / "evaluation.json").exists()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_models_saved_from_python(
    kind: str, mixed: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    save(load(run), folder / "model.safetensors")
    model = folder / "model.safetensors" if kind == "file" else folder
    assert main(["evaluate", str(model), str(mixed)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == expected(run, mixed / "test")
    found = json.loads((folder / "evaluation.json").read_text())
    assert found["recipe"]["encoder"] == "resnet10_16"
    assert "trained by" not in found
    assert (folder / "report.html").exists()
    both = ["--known", str(mixed / "train"), "--unknown", str(mixed / "test" / "cross")]
    assert main(["evaluate", str(model), *both, "--detector", "knn", "--out", "elsewhere"]) == 0
    assert Path("elsewhere/report.html").exists()
    assert "does not say which images to test it on" in refused("evaluate", model)


def test_folders_that_say_nothing(mixed: Path, trained: Path, run: Path, refused: Refused) -> None:
    assert "not two of them" in refused("evaluate", run, mixed, "--known", mixed / "test")
    assert "not two of them" in refused("evaluate", run, mixed, "--protocol", "mnist")
    assert "that the model was trained on" in refused("evaluate", run, trained / "photos")
    save_shapes(Path("new"), ("cross", "bar"), 2)
    Path("new/bar").rename("new/ring")
    assert "no folder of new has the name of a class that the model knows" in refused("evaluate", run, "new")
    shutil.move(mixed / "test", mixed / "val")
    assert "has no test/, only train, val" in refused("evaluate", run, mixed)
    assert "no such file or folder" in refused("evaluate", run, "nowhere/here")
