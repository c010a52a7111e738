"""``gradmix evaluate`` on protocols of several unknown sets, and on images that are known and unknown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from gradmix.cli import main
from gradmix.data import KNOWN_SETS
from gradmix.models import ENCODERS
from tests.cli.conftest import save_shapes
from tests.data.fine_grained import make_aircraft

Refused = Callable[..., str]


def random_weights(classes: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    encoder = ENCODERS["vgg32"](3, "small").state_dict()
    return {**encoder, "fc.weight": torch.randn(classes, 128)}


def evaluate(weights: Path, *words: str | Path) -> int:
    network = ["evaluate", "--weights", weights, "--encoder", "vgg32", "--image-size", "16"]
    return main([str(word) for word in (*network, *words, "--out", "out")])


def read_results() -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = json.loads(
        Path("out/evaluation.json").read_text()
    )
    return found


def test_easy_and_hard_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the Semantic Shift Benchmark: medium and hard ones are pooled, as it reports them."""
    make_aircraft(tmp_path / "data" / "fgvc-aircraft-2013b")
    torch.save(random_weights(50), tmp_path / "w.pth")
    words = ("--protocol", "ssb-aircraft", "--data-root", tmp_path / "data", "--detector", "mls,msp")
    assert evaluate(tmp_path / "w.pth", *words) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["AUROC", "easy", "hard", "mean"]
    found = read_results()
    assert found["unknown test images"] == {"easy": 20, "hard": 30}
    assert "unknown groups" not in found


@pytest.fixture
def openood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CIFAR10 and some of the unknown sets, of random pixels; one image is in CIFAR10 and in CIFAR100."""
    rng = np.random.default_rng(0)
    made = {name: rng.integers(0, 256, (n, 32, 32, 3), np.uint8) for name, n in SIZES.items()}
    made["cifar100"][3] = made["cifar10"][5]
    (tmp_path / "data").mkdir()
    for name, images in made.items():
        labels = np.arange(len(images)) % (100 if name == "cifar100" else 10)
        parts = {f"x_{part}": images for part in ("train", "test")}
        np.savez(tmp_path / "data" / f"{name}.npz", **parts, y_train=labels, y_test=labels)
        known = replace(KNOWN_SETS[name], paths=(f"{name}.npz",), class_names=None)
        monkeypatch.setitem(KNOWN_SETS, name, known)
    for name, known in KNOWN_SETS.items():
        monkeypatch.setitem(KNOWN_SETS, name, replace(known, hub_repo=None))  # nothing is downloaded
    torch.save(random_weights(10), tmp_path / "w.pth")
    return tmp_path


SIZES = {"cifar10": 20, "cifar100": 100, "svhn": 12}


def test_near_and_far_sets(openood: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--protocol", "openood-cifar10", "--data-root", openood / "data", "--detector", "mls,msp")
    assert evaluate(openood / "w.pth", *words) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert "needs tiny-imagenet, mnist, textures, places365: not found" in error
    assert "--skip-missing" in error
    assert not Path("out").exists()
    assert evaluate(openood / "w.pth", *words, "--skip-missing") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[2].split() == ["AUROC", "cifar100", "svhn", "near", "far", "mean"]
    assert "note: left out: textures (looked for dtd/dtd" in err
    assert "note: cifar100: all test images; OpenOOD keeps 1,000 of them for validation" in err
    assert "#3 of cifar100 is the same image as" in err  # said, and left in, as everybody does
    found = read_results()
    near, far = (found["unknown sets"][name]["msp"]["auroc"] for name in ("cifar100", "svhn"))
    assert found["metrics"]["msp"]["auroc"] == pytest.approx((near + far) / 2)
    groups = found["unknown groups"]
    assert [groups[name]["msp"]["auroc"] for name in ("near", "far")] == [near, far]
    assert list(found["left out"]) == ["tiny-imagenet", "mnist", "textures", "places365"]
    assert "openness" not in found


def test_skipping_what_a_protocol_does_not_have(openood: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--protocol", "cifar10", "--data-root", openood / "data", "--skip-missing")
    torch.save(random_weights(6), openood / "six.pth")
    assert evaluate(openood / "six.pth", *words) == 2
    (error,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("gradmix:"))
    assert "--skip-missing is about protocols of several unknown sets, not cifar10" in error


def test_an_image_that_is_known_and_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = tmp_path / "known"
    save_shapes(known, ("disc", "cross"), 3)
    save_shapes(tmp_path / "other", ("square",), 3, seed=5)
    copied = next((known / "disc").iterdir())
    torch.save(random_weights(2), tmp_path / "w.pth")
    words = ("--known", known, "--unknown", tmp_path / "other", "--detector", "mls")
    assert evaluate(tmp_path / "w.pth", *words) == 0
    shutil.rmtree("out")
    # Other bytes, the same pixels.
    Image.open(copied).save(tmp_path / "other" / "copy.bmp")
    assert evaluate(tmp_path / "w.pth", *words) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "copy.bmp of the unknown ones is the same image as" in error
    assert str(copied.name) in error
    assert "an image cannot be known and unknown: take it out of one of them" in error
    assert not Path("out").exists()
