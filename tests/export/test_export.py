"""``gradmix export``: the same answers without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from gradmix import OpenSetClassifier
from gradmix.cli import main
from gradmix.detection import KNN, Decision
from gradmix.errors import UserError
from gradmix.export import export_model
from gradmix.export.onnx_graph import Graph
from gradmix.export.onnx_predict import read_pixels
from gradmix.recognition import Recognizer, fit, load
from tests.data.decoding.damage import damaged, whole_images
from tests.training.tiny import CLASSES, SIDE, shape_image, tiny_images, tiny_recipe

slow = pytest.mark.slow
Refused = Callable[..., str]


@pytest.fixture(scope="module")
def contrastive() -> Recognizer:
    return fit(tiny_images(20), tiny_recipe(epochs=3, false_reject=0.2, holdout=0.25))


@pytest.fixture(scope="module")
def classifier() -> Recognizer:
    return fit(tiny_images(20), tiny_recipe(method="ce", epochs=3, false_reject=0.2, holdout=0.25))


@pytest.fixture(scope="module")
def no_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder which, put on PYTHONPATH, makes importing torch or gradmix an error."""
    folder = tmp_path_factory.mktemp("no_torch")
    for name in ("torch", "gradmix"):
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is not to be imported here')")
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What the network is meant for, and images of every kind that has a way of its own through decoding."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(3)
    for kind in (*CLASSES, "cross"):
        for i in range(3):
            Image.fromarray(shape_image(kind, rng)).save(folder / f"{kind}{i}.png")
    large = Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).resize((407, 231))
    large.save(folder / "large.jpg")
    large.convert("CMYK").save(folder / "cmyk.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    large.save(folder / "turned.jpg", exif=exif)
    large.convert("L").save(folder / "grey.png")
    large.convert("P").save(folder / "palette.png")
    large.convert("1").save(folder / "bits.png")
    clear = large.copy()
    clear.putalpha(Image.linear_gradient("L").resize(large.size))
    clear.save(folder / "clear.png")
    clear.convert("LA").save(folder / "grey_clear.png")
    large.convert("P").save(folder / "clear.gif", transparency=3)
    Image.fromarray(rng.integers(0, 2**16, (50, 70), np.uint16)).save(folder / "deep.png")
    large.save(folder / "lossy.webp")
    return sorted(folder.iterdir())


def answers_without_torch(exported: Path, files: list[Path], no_torch: Path) -> list[tuple[str, str, float]]:
    """Run the exported example as a user would, where torch cannot be imported."""
    done = subprocess.run(
        [sys.executable, exported / "predict.py", *files],
        env=os.environ | {"PYTHONPATH": str(no_torch)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == [str(file) for file in files]
    return [(label, nearest, score) for _, label, nearest, score, _ in rows]


def assert_same(recognizer: Recognizer, chosen: Decision, files: list[Path], rows: list[Any]) -> None:
    """Score to 1e-4, nearest class, and label wherever the score is not that near to its threshold."""
    scores = chosen.scores(recognizer.outputs(recognizer.read(*files)))
    limits = chosen.threshold.of(scores.label)
    both = zip(rows, scores.score.tolist(), scores.label.tolist(), limits.tolist(), strict=True)
    for (label, nearest, score), expected, near, limit in both:
        assert score == pytest.approx(expected, abs=1e-4)
        assert nearest == recognizer.class_names[near]
        if abs(expected - limit) > 1e-4:
            assert label == (nearest if expected >= limit else "unknown")


def check(recognizer: Recognizer, score: str, files: list[Path], out: Path, no_torch: Path) -> Decision:
    export_model(recognizer, out, score)
    chosen = (recognizer.with_detector(score) if score else recognizer).decision
    assert_same(recognizer, chosen, files, answers_without_torch(out, files, no_torch))
    return chosen


@slow
def test_the_command_and_the_example(
    trained: Path, tmp_path: Path, pictures: list[Path], no_torch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(trained / "run"), "--out", "deep/exported"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("deep/exported\n", "")
    exported = tmp_path / "deep" / "exported"
    names = {"model.onnx", "predict.py", "README.md"}
    assert {file.name for file in exported.iterdir()} == names
    assert [file.name for file in exported.parent.iterdir()] == ["exported"]
    code = [line for line in (exported / "predict.py").read_text().splitlines()[1:] if line.strip()]
    assert len(code) <= 30
    # Against the other command, file by file.
    assert main(["predict", str(trained / "run"), *map(str, pictures), "--format", "json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    rows = answers_without_torch(exported, pictures, no_torch)
    for (label, nearest, score), row in zip(rows, expected, strict=True):
        assert score == pytest.approx(row["score"], abs=1e-4)
        assert (label, nearest) == (row["label"], row["nearest"])
    one = answers_without_torch(exported, pictures[:1], no_torch)  # any number of images
    assert one[0][2] == pytest.approx(rows[0][2], abs=1e-5)


def test_the_example_refuses_a_damaged_image_in_one_line(tmp_path: Path) -> None:
    """Of any kind of damage: Pillow raises errors of a dozen kinds, some of several lines or of none."""
    random, refusals = np.random.default_rng(0), []
    for number, whole in enumerate(whole_images().values()):
        for broken in damaged(whole, 8, random):
            file = tmp_path / f"{number}.img"
            file.write_bytes(broken)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    assert read_pixels(str(file), 16, 3).shape == (16, 16, 3)
            except SystemExit as stop:
                refusals.append(str(stop.code))
    assert len(refusals) > 50
    assert all(" cannot be read: " in line and len(line.splitlines()) == 1 for line in refusals)


@slow
def test_the_example_as_a_script(contrastive: Recognizer, tmp_path: Path) -> None:
    """Broken images end it with one line, without a traceback."""
    export_model(contrastive, tmp_path / "out")
    (tmp_path / "broken.png").write_bytes(b"no image")

    def stderr_of(*words: str) -> str:
        command = [sys.executable, tmp_path / "out" / "predict.py", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    assert stderr_of(str(tmp_path / "broken.png")).startswith(f"{tmp_path / 'broken.png'} cannot be read: ")
    assert len(stderr_of("nowhere.png").splitlines()) == 1
    assert "python predict.py a.jpg b.png" in stderr_of()


@slow
@pytest.mark.parametrize("score", ["knn:shifted", "knn:sum", "knn:softmax", "knn:none", "nno"])
def test_scores_of_a_contrastive_model(
    contrastive: Recognizer, score: str, pictures: list[Path], tmp_path: Path, no_torch: Path
) -> None:
    check(contrastive, score, pictures, tmp_path / "out", no_torch)


@slow
@pytest.mark.parametrize("score", ["", "openmax", "knn", "nno"])  # all others: test_export_scores.py
def test_scores_of_a_classifier(
    classifier: Recognizer, score: str, pictures: list[Path], tmp_path: Path, no_torch: Path
) -> None:
    chosen = check(classifier, score, pictures, tmp_path / "out", no_torch)
    assert chosen.threshold.promised  # from the held-out features, at the rate of the model's own


@slow
def test_enrolled_classes_and_thresholds_by_class(
    contrastive: Recognizer, pictures: list[Path], tmp_path: Path, no_torch: Path
) -> None:
    taught = contrastive.enroll("cross", tiny_images(4, ("cross",), seed=8)).recalibrate(per_class=True)
    assert len(taught.threshold.by_class) == 4
    taught = replace(taught, decision=replace(taught.decision, class_bias=(0.0, 0.0, 0.0, 0.05)))
    check(taught, "", pictures, tmp_path / "taught", no_torch)
    check(taught.forget("disc"), "", pictures, tmp_path / "less", no_torch)


@slow
def test_one_class_few_images_grey_and_a_threshold_that_rejects_nothing(
    pictures: list[Path], tmp_path: Path, no_torch: Path
) -> None:
    recognizer = fit(tiny_images(4), tiny_recipe(max_steps=1, channels=1, k=3, false_reject=0.01))
    assert not recognizer.threshold.guaranteed
    few = recognizer.enroll("two", tiny_images(2, ("cross",)))  # fewer than k
    check(few, "", pictures, tmp_path / "few", no_torch)
    check(recognizer.forget("bar").forget("disc"), "", pictures, tmp_path / "one", no_torch)


class Own(nn.Module):
    """A backbone with what residual networks have not: a tuple of maps, another normalisation, a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, stride=2), nn.GroupNorm(2, 8)
        self.last = nn.Conv2d(8, 12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        return self.last(x) + x.mean((1, 2, 3), keepdim=True)


@slow
@pytest.mark.parametrize("layer", ["", "norm"])
def test_backbones_of_ones_own(pictures: list[Path], tmp_path: Path, no_torch: Path, layer: str) -> None:
    torch.manual_seed(0)
    made = OpenSetClassifier("frozen", backbone=Own(), backbone_layer=layer, overrides={"image_size": SIDE})
    recognizer = made.fit(tiny_images(8)).recognizer_
    check(recognizer, "", pictures, tmp_path / "out", no_torch)


class Untraceable(nn.Module):
    """What it computes depends on what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :4] * self.scale * (2.0 if float(x.sum()) > 0 else 1.0)


def without_lengths(index: KNN) -> dict[str, Tensor]:
    return {name: value for name, value in index.state().items() if name != "lengths"}


def test_what_cannot_be_exported_is_one_line(
    contrastive: Recognizer, classifier: Recognizer, tmp_path: Path, refused: Refused, trained: Path
) -> None:
    def fails(recognizer: Recognizer, score: str, what: str) -> None:
        with pytest.raises(UserError, match=what) as caught:
            export_model(recognizer, tmp_path / "out", score)
        assert "\n" not in str(caught.value)
        assert "\x1b" not in str(caught.value)
        assert not list(tmp_path.glob("*out*"))
        assert not list(tmp_path.glob(".*"))

    fails(contrastive, "mls", "detector 'mls' needs logits, and this network has no classifier .* knn or nno")
    old = replace(classifier, index=KNN.from_state(without_lengths(classifier.index), {}))
    fails(old, "nno", "made by an earlier version, holds directions only")
    fails(replace(classifier, calibration=None), "energy", "no held-out images to set it with")
    taught = classifier.with_detector("knn").enroll("cross", tiny_images(4, ("cross",)))
    fails(taught, "mls", "knows only the classes")
    fails(contrastive, "mahalonobis", "no detector 'mahalonobis'; did you mean 'mahalanobis'")
    fails(classifier, "knn+mls", r"detector 'knn\+mls' cannot be written as ONNX; .* knn or nno, or mls")
    with pytest.warns(UserWarning, match="nothing is rejected"):
        odd = OpenSetClassifier("frozen", backbone=Untraceable(), overrides={"image_size": SIDE}).fit(
            tiny_images(4)
        )
    # Torch takes its seconds to find out; in the fast tests, this is the only one that asks it.
    fails(odd.recognizer_, "", r"this network \(Backbone\) cannot be written as ONNX: ")
    (tmp_path / "there").mkdir()
    assert "there exists already" in refused("export", trained / "run", "--out", "there")
    (tmp_path / "file").write_text("")
    assert "cannot make the folder file/out" in refused("export", trained / "run", "--out", "file/out")
    assert "no model at nowhere" in refused("export", "nowhere", "--out", "out")


@slow
def test_a_graph_that_answers_differently_is_refused(
    contrastive: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Graph.forward

    def noisy(graph: Graph, pixels: Tensor) -> Any:
        found = forward(graph, pixels)
        return found if torch.compiler.is_exporting() else (found[0] + 0.001, *found[1:])

    monkeypatch.setattr(Graph, "forward", noisy)
    with pytest.raises(UserError, match=r"answers differently as ONNX: score by 0\.001"):
        export_model(contrastive, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


def test_without_the_extra(contrastive: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"pip install 'gradmix\[export\]'"):
        export_model(contrastive, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


@slow
def test_exemplars_speak_alone_without_torch(
    trained: Path, tmp_path: Path, pictures: list[Path], no_torch: Path
) -> None:
    taught = load(trained / "run").enroll("cross", tiny_images(8, ("cross",), 3))
    assert "exemplars" in taught.index.state()
    check(taught, "", pictures, tmp_path / "taught", no_torch)
