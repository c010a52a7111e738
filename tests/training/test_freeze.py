"""``freeze``: up to a layer the encoder stays as its weights were, BatchNorm's statistics included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.models import ENCODERS
from gradmix.training import Recipe, train
from gradmix.training.session import build_method
from tests.training.interrupted import train_whole_and_stopped
from tests.training.tiny import CLASSES, tiny_images, tiny_recipe

NAME = "resnet10_16"  # layer1 to layer4 end in conv2_2 to conv5_2


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return freezing(tmp_path, freeze="conv3_2")


def freezing(folder: Path, **fields: object) -> Recipe:
    """A recipe that starts from a file of weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        torch.save(ENCODERS[NAME](3, "small").state_dict(), folder / "weights.pth")
    return tiny_recipe(encoder=NAME, stem="small", init=str(folder / "weights.pth"), **fields)


def changed(recipe: Recipe) -> set[str]:
    """Train; return the parts of the encoder of which anything differs from the file."""
    before: dict[str, Tensor] = torch.load(recipe.model.init, weights_only=True)
    trained = train(tiny_images(8), recipe)
    after = trained.network.encoder.state_dict()
    assert all(p.requires_grad for p in trained.network.parameters())
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize(
    ("until", "parts"),
    [
        ("", {"conv1", "bn1", "layer1", "layer2", "layer3", "layer4"}),
        ("conv2_2", {"layer2", "layer3", "layer4"}),
        ("conv3_2", {"layer3", "layer4"}),
        ("conv4_2", {"layer4"}),
    ],
)
def test_what_is_frozen_stays_and_the_rest_learns(tmp_path: Path, until: str, parts: set[str]) -> None:
    assert changed(freezing(tmp_path, freeze=until, layers="conv5_2", epochs=1)) == parts


def test_the_whole_encoder_may_stay(tmp_path: Path) -> None:
    assert changed(freezing(tmp_path, freeze="conv5_2", mixer="none", epochs=1)) == set()


@pytest.mark.parametrize("method", ["ce", "moco", "arpl", "proser"])
def test_other_methods_too(tmp_path: Path, method: str) -> None:
    assert changed(freezing(tmp_path, method=method, freeze="conv3_2", epochs=1)) == {"layer3", "layer4"}


def test_stopped_and_resumed_to_the_same_bits(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_whole_and_stopped(tiny_images(8), recipe, 3, tmp_path, monkeypatch)


def test_frozen_parts_take_no_gradient_and_keep_their_statistics(recipe: Recipe) -> None:
    encoder = build_method(recipe, CLASSES).network.encoder
    for name, module in encoder.named_modules():
        if name.startswith(("layer3", "layer4")):
            assert module.training
        elif name.startswith(("conv1", "bn1", "layer1", "layer2")):
            assert not module.training
    trains = {name.split(".")[0] for name, p in encoder.named_parameters() if p.requires_grad}
    assert trains == {"layer3", "layer4"}


def test_maps_of_a_frozen_layer_are_refused_where_they_would_be_needed(tmp_path: Path) -> None:
    recipe = freezing(tmp_path, freeze="conv4_2", layers="conv4_2,conv5_2")
    with pytest.raises(
        UserError, match="no gradient comes back to conv4_2, for freeze is conv4_2; give later"
    ):
        build_method(recipe, CLASSES)
    build_method(freezing(tmp_path, freeze="conv4_2", layers="conv4_2", mixer="cutmix"), CLASSES)


def test_what_cannot_be_frozen_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no layer 'conv9_2'; did you mean 'conv"):
        build_method(freezing(tmp_path, freeze="conv9_2"), CLASSES)
    with pytest.raises(UserError, match="freeze: without trained weights there is nothing worth keeping"):
        tiny_recipe(freeze="conv3_2")
    with pytest.raises(UserError, match=r"freeze: .* has no named layers"):
        build_method(freezing(tmp_path, freeze="conv3_2", method="medaf"), CLASSES)
