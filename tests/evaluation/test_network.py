"""A network that somebody else trained, in Python: all scores with training images, fewer without."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from gradmix.data import ImageSet
from gradmix.detection import Scores
from gradmix.errors import UserError
from gradmix.evaluation import evaluate_network, open_set_metrics
from gradmix.recognition import load, save
from gradmix.views import Normalizer
from tests.training.tiny import SIDE, tiny_images


def make_module(classes: int = 3) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, classes))


@pytest.fixture(scope="module")
def known() -> ImageSet:
    return tiny_images(seed=1)


@pytest.fixture(scope="module")
def unknown() -> ImageSet:
    return tiny_images(classes=("cross",), seed=2).only([0], as_unknown=True)


def test_the_numbers_are_those_of_the_module_itself(known: ImageSet, unknown: ImageSet) -> None:
    module, normalizer = make_module(), Normalizer((0.4,) * 3, (0.2,) * 3)
    found = evaluate_network(module, known, unknown, normalizer=normalizer, image_size=SIDE, cache=False)
    assert found.left_out[:2] == ("knn", "nno")
    assert "openmax" in found.left_out
    assert next(iter(found.result.metrics)) == "mls"
    assert not set(found.left_out) & set(found.result.metrics)
    with torch.no_grad():
        of_known, of_unknown = (module(normalizer(images.images[:])) for images in (known, unknown))
    for name, score in (("mls", of_known.amax(1)), ("msp", of_known.softmax(1).amax(1))):
        there = {"mls": of_unknown.amax(1), "msp": of_unknown.softmax(1).amax(1)}[name]
        by_hand = open_set_metrics(
            Scores(score.double(), of_known.argmax(1)),
            known.labels,
            Scores(there.double(), of_unknown.argmax(1)),
        )
        for metric in ("auroc", "oscr", "closed_set_accuracy"):
            assert found.result.metrics[name][metric] == pytest.approx(by_hand[metric], abs=0.01)
    assert "macro_f1" not in found.result.main  # there is no threshold


def test_with_training_images_every_detector_is_fitted(known: ImageSet, unknown: ImageSet) -> None:
    train = tiny_images(seed=0)
    found = evaluate_network(make_module(), known, unknown, train=train, image_size=SIDE, cache=False)
    assert found.left_out == ()
    assert {"mls", "msp", "knn", "nno", "openmax"} <= {
        name.partition(":")[0] for name in found.result.metrics
    }
    assert "macro_f1" in found.result.main
    threshold = found.recognizer.threshold
    assert (threshold.n, threshold.held_out) == (len(train), False)
    assert found.recognizer.predict(train).accepted.double().mean() >= 0.95
    some = evaluate_network(
        make_module(), known, unknown, train=train, image_size=SIDE, detectors=["knn"], cache=False
    )
    assert list(some.result.metrics) == ["mls", "knn"]


def test_features_without_logits_need_training_images(known: ImageSet, unknown: ImageSet) -> None:
    features = nn.Sequential(*list(make_module())[:-1])
    with pytest.raises(UserError, match="no classifier, and neighbours need training images"):
        evaluate_network(features, known, unknown, image_size=SIDE, cache=False)
    found = evaluate_network(features, known, unknown, train=tiny_images(), image_size=SIDE, cache=False)
    assert next(iter(found.result.metrics)) == "knn"
    assert "mls" not in found.result.metrics


def test_mistakes_are_named(known: ImageSet, unknown: ImageSet) -> None:
    with pytest.raises(UserError, match=r"'knn' learns from training images, and there are none.*--train"):
        evaluate_network(make_module(), known, unknown, image_size=SIDE, detectors=["knn"], cache=False)
    turned = tiny_images().only([2, 1, 0])
    with pytest.raises(UserError, match="other classes, or in another order"):
        evaluate_network(make_module(), known, unknown, train=turned, image_size=SIDE, cache=False)


def test_the_recognizer_can_be_kept(known: ImageSet, unknown: ImageSet, tmp_path: Path) -> None:
    module = make_module()
    found = evaluate_network(module, known, unknown, train=tiny_images(), image_size=SIDE, cache=False)
    save(found.recognizer, tmp_path / "model.safetensors")
    opened = load(tmp_path / "model.safetensors", backbone=make_module())
    before, after = (model.outputs(known) for model in (found.recognizer, opened))
    assert torch.equal(before.features, after.features)
    assert opened.predict(known).names() == found.recognizer.predict(known).names()
