"""gradmix train --backbone hf:…: a model like any other, from the folder of photos to ONNX."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from gradmix import OpenSetClassifier
from gradmix.cli import main
from gradmix.recognition import load
from tests.cli.conftest import save_shapes
from tests.models.tiny_towers import PATCH, SIDE, own_features, save_tower
from tests.training.tiny import CLASSES

Refused = Callable[..., str]
OPTIONS = ["--k", "2", "--holdout", "0.25", "--false-reject", "0.3"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/, test/, others/, dino/ (with registers, and a buffer that no file holds) and run/."""
    folder = tmp_path_factory.mktemp("tower")
    save_tower("dinov3", folder / "dino")
    save_shapes(folder / "photos", CLASSES, 12)
    save_shapes(folder / "test", CLASSES, 4, seed=1)
    save_shapes(folder / "others", ("cross",), 6, seed=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADMIX_CACHE", str(folder / "cache"))
        words = ["train", str(folder / "photos"), "--backbone", f"hf:{folder / 'dino'}", *OPTIONS]
        assert main([*words, "--out", str(folder / "run")]) == 0
    return folder


def predict(model: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    capsys.readouterr()
    assert main(["predict", str(model), str(images), "--format", "csv"]) == 0
    return list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:]


def test_the_model_holds_all_that_it_needs(place: Path, tmp_path: Path) -> None:
    """Without the tower's files it gives transformers' own features, of images as the tower wants them."""
    model = load(place / "run")
    recipe = yaml.safe_load((place / "run" / "recipe.yaml").read_text())
    assert (recipe["method"], recipe["image_size"], recipe["normalize"]) == ("frozen", SIDE, "auto")
    about = dict(model.spec.body or {})
    assert (about["source"], about["model_type"]) == ("hf:./dino", "dinov3_vit")
    assert len(about["sha256"]) == 64
    assert str(place) not in json.dumps([model.spec.describe(), dict(model.recipe)])
    assert model.spec.encoder == model.recipe["encoder"] == "hf:./dino"
    theirs = save_tower("dinov3", tmp_path / "again")  # the same weights
    images = model.read(place / "test")
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]))
    features = own_features(theirs, (images.images[:].float() / 255 - mean) / std)
    found = model.network.answer(model.normalizer(images.images[:]))
    torch.testing.assert_close(found.penultimate, features, rtol=1e-5, atol=1e-5)
    whitened = torch.nn.functional.normalize(model.network.projection(features), dim=1)
    torch.testing.assert_close(model.outputs(images).features, whitened, rtol=1e-4, atol=1e-4)
    assert recipe["whiten"]
    assert recipe["train_head"]


def test_used_by_the_commands(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("model.safetensors", "recipe.yaml", "run.json"):
        (run / name).write_bytes((place / "run" / name).read_bytes())
    before = predict(run, place / "test", capsys)
    assert len(before) == 12
    image = str(place / "others" / "cross" / "00.png")
    assert main(["explain", str(run), image, "--out", "why"]) == 0
    heat = torch.tensor(json.loads(Path("why/explain.json").read_text())["images"][0]["heat"])
    assert heat.shape == (SIDE, SIDE)
    assert heat.max() == 1
    words = ["evaluate", str(run), "--known", str(place / "test"), "--unknown", str(place / "others")]
    assert main([*words, "--detector", "knn,rmds"]) == 0
    assert main(["calibrate", str(run), "--false-reject", "0.2"]) == 0
    assert main(["enroll", str(run), "--name", "cross", image]) == 0
    assert load(run).class_names == (*CLASSES, "cross")
    assert predict(run, Path(image), capsys)[0][2] == "cross"
    assert main(["forget", str(run), "--name", "cross"]) == 0
    again = OpenSetClassifier.load(run).predict(place / "test")
    assert [row[1] for row in predict(run, place / "test", capsys)] == list(again)


def test_heat_maps_have_the_grid_of_the_patches(place: Path) -> None:
    from gradmix.attribution import LayerCAM

    model = load(place / "run")
    x = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    seen: list[torch.Size] = []
    encoder = model.network.encoder
    handle = encoder.get_submodule("maps").register_forward_hook(lambda m, i, o: seen.append(o.shape))
    maps = LayerCAM(model.network, ["patches"])(x, lambda z: z[:, 0])
    handle.remove()
    assert seen == [(2, 2 * 32, SIDE // PATCH, SIDE // PATCH)]
    assert maps.shape == (2, SIDE, SIDE)
    assert maps.abs().sum() > 0


@pytest.mark.slow
def test_the_same_answers_as_onnx(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(place / "run"), "--out", "exported"]) == 0
    files = sorted((place / "test").rglob("*.png"))
    command = [sys.executable, "exported/predict.py", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = {row[0]: row[1:] for row in predict(place / "run", place / "test", capsys)}
    assert answers
    for file, label, nearest, score, p_value in answers:
        assert [label, nearest] == wanted[file][:2]
        assert score == pytest.approx(float(wanted[file][2]), abs=1e-4)
        assert 0 < p_value <= 1


def test_in_python(place: Path) -> None:
    word = f"hf:{place / 'dino'}"
    found = OpenSetClassifier(backbone=word, overrides={"k": 2, "holdout": 0.25}, false_reject=0.3)
    assert list(found.fit(place / "photos").predict(place / "test")) == list(
        OpenSetClassifier.load(place / "run").predict(place / "test")
    )


def test_mistakes_leave_nothing(place: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    train = ("train", place / "photos", "--out", "new", *OPTIONS)
    word = f"hf:{place / 'dino'}"
    assert "multiple of 7" in refused(*train, "--backbone", word, "--image-size", "32")
    assert "method gradmix does not train" in refused(*train, "--backbone", word, "--recipe", "small")
    assert "brings its own weights" in refused(*train, "--backbone", word, "--init", "w.pth")
    assert "both name the network" in refused(*train, "--backbone", word, "--encoder", "resnet18")
    assert "--backbone-layer is of a network of your own" in refused(
        *train, "--backbone", word, "--backbone-layer", "norm"
    )
    assert "no config.json in" in refused(*train, "--backbone", f"hf:{place / 'photos'}")
    assert "takes no other: leave --backbone out" in refused(
        "predict", place / "run", place / "test", "--backbone", str(_write_file())
    )
    assert "give the file of your own network" in refused(
        "predict", place / "run", place / "test", "--backbone", word
    )
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "need the extra 'transformers'" in refused(*train, "--backbone", word)
    assert "need the extra 'transformers'" in refused("predict", place / "run", place / "test")
    assert not Path("new").exists()


def _write_file() -> Path:
    file = Path("mine.py")
    file.write_text("def build():\n    return None\n")
    return file
