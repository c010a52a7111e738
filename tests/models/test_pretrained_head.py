"""A published classifier with its head, in a network whose recipe asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.models import ENCODERS, LinearHead, Network
from gradmix.recipe import load_recipe, make_recipe
from gradmix.recognition import fit
from gradmix.training.session import build_network
from tests.training.tiny import tiny_images


@pytest.fixture
def published() -> dict[str, Tensor]:
    """A classifier of five classes as its authors publish it, with the parts that nobody uses."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        weights = {
            f"module.{name}": value for name, value in ENCODERS["vgg32"](3, "small").state_dict().items()
        }
        return weights | {"module.fc.weight": torch.randn(5, 128), "module.bn10.weight": torch.ones(128)}


def build(weights: dict[str, Tensor], folder: Path, classes: int = 5, **fields: object) -> Network:
    torch.save(weights, folder / "w.pth")
    values = {"method": "ce", "encoder": "vgg32", "projection": "none", "classifier_bias": False}
    values |= {"init": str(folder / "w.pth"), "init_head": True, "image_size": 32}
    return build_network(make_recipe(values | fields), classes)


@pytest.mark.parametrize("method", ["ce", "frozen"])
def test_the_head_is_loaded_where_the_recipe_says_so(
    method: str, published: dict[str, Tensor], tmp_path: Path
) -> None:
    network = build(published, tmp_path, method=method)
    assert isinstance(network.classifier, LinearHead)
    assert torch.equal(network.classifier.weight, published["module.fc.weight"])
    assert torch.equal(network.encoder.get_parameter("conv5.weight"), published["module.conv5.weight"])
    without = build(published, tmp_path, method=method, init_head=False)
    if method == "frozen":
        assert without.classifier is None
    else:
        assert isinstance(without.classifier, LinearHead)
        assert not torch.equal(without.classifier.weight, published["module.fc.weight"])


def test_a_bias_is_loaded_too(published: dict[str, Tensor], tmp_path: Path) -> None:
    network = build(published | {"fc.bias": torch.arange(5.0)}, tmp_path, classifier_bias=True)
    assert isinstance(network.classifier, LinearHead)
    assert network.classifier.bias.tolist() == [0, 1, 2, 3, 4]


def test_it_decides_without_any_training(published: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(published | {"module.fc.weight": torch.randn(3, 128)}, tmp_path / "w.pth")
    fields = {
        "encoder": "vgg32",
        "classifier_bias": False,
        "init": str(tmp_path / "w.pth"),
        "init_head": True,
        "whiten": False,
        "train_head": False,
    }
    recipe = load_recipe("frozen", {**fields, "image_size": 16, "detector": "mls", "normalize": "cifar"})
    model = fit(tiny_images().convert(16, 3), recipe)
    assert model.decision.detector.name == "mls"
    assert model.outputs(tiny_images().convert(16, 3)).logits is not None


@pytest.mark.parametrize(
    ("fields", "more", "message"),
    [
        ({"classes": 4}, {}, r"'fc.weight' in .* is \(5, 128\), the classifier wants \(4, 128\)"),
        ({"classifier_bias": True}, {}, r"has no 'fc.bias'; set classifier_bias: false"),
        ({}, {"fc.bias": torch.zeros(5)}, r"has a 'fc.bias'; set classifier_bias: true"),
        ({"projection": "linear"}, {}, "set projection: none"),
        ({"method": "arpl"}, {}, "no linear classifier; choose method ce or frozen"),
        ({"encoder": "resnet18"}, {}, r"lacks 'layer1.0.conv1.weight'; choose the encoder"),
        ({"init": ""}, {}, "no file to take the classifier from"),
    ],
)
def test_what_does_not_fit_is_named(
    fields: dict[str, object],
    more: dict[str, Tensor],
    message: str,
    published: dict[str, Tensor],
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match=message):
        build(published | more, tmp_path, **fields)  # type: ignore[arg-type]


def test_a_file_without_a_classifier_is_named(published: dict[str, Tensor], tmp_path: Path) -> None:
    bare = {name: value for name, value in published.items() if "fc" not in name}
    with pytest.raises(UserError, match=r"w.pth has no classifier 'fc.weight'"):
        build(bare, tmp_path)
