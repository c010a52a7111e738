"""One class alone: "is it an X?" """

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gradmix import OpenSetClassifier
from gradmix.detection import Outputs
from gradmix.errors import UserError
from gradmix.methods import METHODS
from gradmix.recognition import fit, load, save
from gradmix.recognition.trainable import find_obstacles
from tests.training.tiny import tiny_images, tiny_recipe

pytestmark = pytest.mark.filterwarnings("ignore:recipe frozen without trained weights")


@pytest.mark.parametrize("fields", [{}, {"whiten": True, "train_head": True, "holdout": 0.4}])
def test_it_is_named_or_unknown(fields: dict[str, object], tmp_path: Path) -> None:
    bars = tiny_images(60, ("bar",))
    recipe = tiny_recipe(method="frozen", score_normalize="none", false_reject=0.1, **fields)
    model = fit(bars, recipe)
    save(model, tmp_path / "m.safetensors")
    found = load(tmp_path / "m.safetensors")
    again = found.predict(tiny_images(40, ("bar",), seed=9))
    assert set(again.names()) <= {"bar", "unknown"}
    assert float(again.accepted.double().mean()) > 0.6  # 0.9 is the rate; 40 images
    assert bool((again.p_value <= 0.1).eq(~again.accepted).all())


def test_the_estimator_takes_one_class() -> None:
    bars = tiny_images(30, ("bar",)).images[:].permute(0, 2, 3, 1).numpy()
    fields = {"image_size": 20, "encoder": "resnet8_16", "k": 2}
    clf = OpenSetClassifier("frozen", init="", overrides=fields).fit(bars, ["bar"] * 30)
    assert clf.known_classes_.tolist() == ["bar"]
    assert clf.predict_proba(bars[:3]).shape == (3, 2)
    assert set(clf.predict(bars)) <= {"bar", "unknown"}


def test_something_else_is_unknown() -> None:
    """Features that point elsewhere, whatever the encoder makes of pixels."""
    bars = tiny_images(60, ("bar",))
    recipe = tiny_recipe(method="frozen", score_normalize="none", false_reject=0.1)
    model = fit(bars, recipe)
    features = model.index.training_features().features
    own, other = Outputs(features[:9], torch.zeros(9)), Outputs(-features[:9], torch.zeros(9))
    assert model.decision.decide(own, model.class_names).names() == ["bar"] * 9
    assert model.decision.decide(other, model.class_names).names() == ["unknown"] * 9


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_need_two_say_so(method: str) -> None:
    found = find_obstacles({"cat": 60}, tiny_recipe(method=method, score_normalize="none"))
    if METHODS[method].takes_one_class:
        assert found == []
    else:
        ((name, reason),) = found
        assert name == ""
        assert reason.startswith(f"there is only one class (cat), and method {method} learns from what tells")
        assert "recipe photos" in reason


def test_scores_that_compare_classes_say_so() -> None:
    counts = {"cat": 60}
    recipe = tiny_recipe(method="frozen", detector="mls")
    assert "detector mls compares classes" in find_obstacles(counts, recipe)[0].reason
    recipe = tiny_recipe(method="frozen", score_normalize="sum")
    assert "score_normalize sum is a share" in find_obstacles(counts, recipe)[0].reason
    with pytest.raises(UserError, match="only one class"):
        OpenSetClassifier("small", epochs=1).fit(tiny_images(9, ("bar",)))
