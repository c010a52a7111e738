"""Methods with a score of their own: its temperature, and outputs of the network that only it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradmix.detection import MSP, Energy, OpenMax, Placeholder
from gradmix.detection.placeholder import placeholder
from gradmix.detection.settings import DetectionSettings
from gradmix.errors import UserError
from gradmix.evaluation import applicable_detectors, evaluate_open_set
from gradmix.methods import METHODS
from gradmix.methods.cross_entropy import CrossEntropy
from gradmix.models import Answer, LinearHead, Network, NetworkSpec
from gradmix.models.heads import HEADS
from gradmix.recognition import Recognizer, fit, load, save
from gradmix.recognition.build import make_own_detector
from tests.training.tiny import tiny_images, tiny_recipe

QUICK: dict[str, Any] = {"max_steps": 2, "holdout": 0.25, "false_reject": 0.2}


class DummyHead(LinearHead):
    """A linear head that gives two dummy logits, too."""

    kind = "with-dummies"

    def __init__(self, dim: int, classes: int, bias: bool = True) -> None:
        super().__init__(dim, classes, bias)
        self.dummies = nn.Linear(dim, 2)

    def extra(self, z: Tensor) -> dict[str, Tensor]:
        return {"dummies": self.dummies(z)}


class Dummies(CrossEntropy):
    detector = "placeholder"

    @classmethod
    def describe_network(cls, plain: NetworkSpec, *others: Any) -> NetworkSpec:
        spec = super().describe_network(plain, *others)
        return replace(spec, head={**(spec.head or {}), "kind": DummyHead.kind})


class Warm(CrossEntropy):
    detector = "msp"
    score_temperature = 100.0


@pytest.fixture
def with_dummies(monkeypatch: pytest.MonkeyPatch) -> Recognizer:
    monkeypatch.setitem(HEADS, DummyHead.kind, DummyHead)
    monkeypatch.setitem(METHODS, "ce", Dummies)
    return fit(tiny_images(12), tiny_recipe(method="ce", **QUICK))


def test_a_score_of_another_output_decides_and_is_saved(with_dummies: Recognizer, tmp_path: Path) -> None:
    images = tiny_images(4, seed=5)
    outputs = with_dummies.outputs(images)
    assert outputs.logits is not None
    found = with_dummies.predict(images)
    expected = placeholder(outputs.logits, outputs.extra["dummies"])
    assert torch.equal(found.score, expected)
    assert torch.equal(found.nearest, outputs.logits.argmax(1))
    assert with_dummies.threshold.promised
    save(with_dummies, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert torch.equal(again.predict(images).score, found.score)
    # From another score back to it, by what the file holds; and at another rate.
    for model in (with_dummies, again):
        back = model.with_detector("mls").with_detector("placeholder")
        assert back.threshold.value == pytest.approx(with_dummies.threshold.value, rel=1e-5)
        assert model.recalibrate(0.3).threshold.promised


def test_evaluate_lists_what_the_network_gives(with_dummies: Recognizer) -> None:
    possible = applicable_detectors(with_dummies)
    assert possible[0] == "placeholder"
    assert {"openmax", "osrci", "mls", "knn:none"} <= set(possible)
    assert not {"reconstruction", "rotpred", "mcm", "gl-mcm", "clipn-atd"} & set(possible)
    other = with_dummies.with_detector("mls")
    assert "placeholder" in applicable_detectors(other)
    known, unknown = tiny_images(4, seed=5), tiny_images(4, ("cross",), seed=5)
    by_others = evaluate_open_set(other, known, unknown, detectors=["placeholder", "openmax"])
    own = evaluate_open_set(with_dummies, known, unknown)
    assert by_others.metrics["placeholder"]["auroc"] == own.main["auroc"]
    with pytest.raises(UserError, match=r"'rotpred' needs rotation.*models trained with rotpred do"):
        evaluate_open_set(other, known, unknown, detectors=["rotpred"])
    enrolled = other.with_detector("knn").enroll("cross", unknown)
    assert not {"placeholder", "mls", "openmax"} & set(applicable_detectors(enrolled))


def test_the_training_images_set_the_threshold_if_the_head_alone_is_asked(with_dummies: Recognizer) -> None:
    bare = replace(with_dummies, calibration=None)
    found = bare.recalibrate(0.3).threshold
    assert (found.held_out, found.n) == (False, 27)


def test_outputs_of_the_image_cannot_be_had_from_features(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Network.answer

    def answer(network: Network, x: Tensor) -> Answer:
        found = plain(network, x)
        return replace(found, extra={"errors": x.flatten(1)[:, :3].abs()})

    monkeypatch.setattr(Network, "answer", answer)
    made = fit(tiny_images(12), tiny_recipe(method="ce", detector="reconstruction", **QUICK))
    assert made.threshold.promised
    assert applicable_detectors(made)[0] == "reconstruction"
    assert made.recalibrate(0.3).threshold.promised  # of the held-out images all is kept
    by_logits = made.with_detector("mls")
    assert "reconstruction" in applicable_detectors(by_logits)
    images = tiny_images(4, seed=5)
    assert torch.equal(
        by_logits.with_detector("reconstruction").predict(images).score, made.predict(images).score
    )
    with pytest.raises(UserError, match=r"needs errors of each image.*gradmix calibrate"):
        replace(made, calibration=None).recalibrate(0.3)


def test_the_methods_temperature_counts_where_its_own_score_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(**fields: Any) -> Any:
        return make_own_detector(tiny_recipe(method="ce", **fields))

    monkeypatch.setitem(METHODS, "ce", Warm)
    assert isinstance(made(), MSP)
    assert made().temperature == 100.0
    assert made(score_temperature=7).temperature == 7.0
    assert made(detector="msp").temperature == 1.0
    assert made(detector="energy", score_temperature=7).temperature == 7.0
    assert isinstance(made(detector="energy"), Energy)
    assert made(detector="mls", score_temperature=7).settings() == {}


def test_the_recipe_sets_openmax() -> None:
    fields = {"openmax_tail": 9, "openmax_alpha": 2, "openmax_distance": "cosine", "openmax_variant": "neal"}
    recipe = tiny_recipe(method="ce", detector="openmax", **fields)
    detector = make_own_detector(recipe)
    assert isinstance(detector, OpenMax)
    assert (detector.tail, detector.alpha, detector.openmax_distance) == (9, 2, "cosine")
    assert detector.variant == "neal"
    released = make_own_detector(tiny_recipe(method="ce", detector="placeholder", score_temperature=1024))
    assert isinstance(released, Placeholder)
    assert released.probability == 1024
    for wrong, message in (
        ({"openmax_tail": 2}, "tail of at least 3"),
        ({"openmax_alpha": 0}, "alpha of at least 1"),
        ({"openmax_distance": "euclid"}, "did you mean 'euclidean'"),
        ({"score_temperature": 0.0}, "score_temperature must be positive"),
    ):
        with pytest.raises(UserError, match=message):
            DetectionSettings(**wrong)


def test_openmax_decides_from_the_start_and_later(tmp_path: Path) -> None:
    recipe = tiny_recipe(method="ce", detector="openmax", **QUICK)
    made = fit(tiny_images(12), recipe)
    images = tiny_images(4, seed=5)
    save(made, tmp_path / "m.safetensors")
    assert torch.equal(load(tmp_path / "m.safetensors").predict(images).score, made.predict(images).score)
    later = fit(tiny_images(12), tiny_recipe(method="ce", **QUICK)).with_detector("openmax")
    # There the logits of the training images are computed again from their features.
    torch.testing.assert_close(later.predict(images).score, made.predict(images).score, rtol=1e-4, atol=1e-4)
