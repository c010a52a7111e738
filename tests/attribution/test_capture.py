"""Layers by name, and hooks that never outlive their block."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gradmix.attribution import Capture, resolve_layer
from gradmix.errors import UserError
from gradmix.models import ModelSettings, Network, build_encoder


class Branches(nn.Module):
    """A network with aliases, a layer that is never called and one that gives no feature map."""

    layer_names = {"first": "stem.0", "last": "head"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU())
        self.idle = nn.Conv2d(2, 2, 1)
        self.pool = nn.AdaptiveMaxPool2d(1, return_indices=True)
        self.head = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        pooled, _ = self.pool(self.stem(x))
        out: Tensor = self.head(pooled.flatten(1))
        return out


def hooks_on(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._backward_hooks) for module in model.modules())


IMAGES = torch.ones(2, 1, 4, 4)


def test_dotted_name_and_alias_lead_to_the_same_layer() -> None:
    model = Branches()
    assert resolve_layer(model, "stem.0") is model.stem[0]
    assert resolve_layer(model, "first") is model.stem[0]
    assert resolve_layer(model, "idle") is model.idle


def test_alias_of_a_model_inside_another() -> None:
    inner = Branches()
    outer = nn.Sequential(nn.Identity(), inner)
    assert resolve_layer(outer, "first") is inner.stem[0]
    assert resolve_layer(outer, "1.stem.1") is inner.stem[1]


@pytest.mark.parametrize(
    ("encoder", "name", "module"),
    [
        ("resnet18", "conv3_2", "layer2.1"),
        ("resnet18", "conv5_2", "layer4.1"),
        ("resnet34", "conv4_2", "layer3.5"),
        ("resnet10_16", "conv5_2", "layer4.0"),
    ],
)
def test_the_papers_names(encoder: str, name: str, module: str) -> None:
    network = Network(build_encoder(ModelSettings(encoder), 32, 3), 512, 128)
    assert resolve_layer(network, name) is network.get_submodule(f"encoder.{module}")


def test_a_real_module_wins_over_an_alias_of_the_same_name() -> None:
    model = Branches()
    model.layer_names = {"idle": "stem.0"}
    assert resolve_layer(model, "idle") is model.idle


@pytest.mark.parametrize(("wrong", "right"), [("frst", "first"), ("stem.00", "stem.0"), ("idl", "idle")])
def test_misspelt_layer_names_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(UserError, match=rf"no layer '{wrong}'; did you mean '{right}'\?"):
        resolve_layer(Branches(), wrong)


def test_misspelt_layer_of_a_model_without_aliases() -> None:
    model = nn.Sequential()
    model.add_module("features", nn.Conv2d(1, 1, 1))
    with pytest.raises(UserError, match="did you mean 'features'"):
        Capture(model, ["feature"])


def test_outputs_come_in_the_order_asked_for_and_from_the_latest_pass() -> None:
    model = Branches()
    with Capture(model, ["stem.1", "first"]) as capture:
        model(IMAGES)
        model(3 * IMAGES)
        relu, convolution = capture.activations()
        assert torch.equal(convolution, model.stem[0](3 * IMAGES))
        assert torch.equal(relu, convolution.relu())
        assert relu.grad_fn is not None


def test_hooks_are_there_inside_and_gone_outside() -> None:
    model = Branches()
    with Capture(model, ["first", "stem.1"]):
        assert hooks_on(model) == 2
    assert hooks_on(model) == 0


def test_hooks_are_gone_after_an_exception() -> None:
    model = Branches()
    with pytest.raises(KeyboardInterrupt), Capture(model, ["first"]):
        raise KeyboardInterrupt
    assert hooks_on(model) == 0


def test_hooks_are_gone_after_a_failing_forward_pass() -> None:
    model = Branches()
    with pytest.raises(RuntimeError), Capture(model, ["first"]):
        model(torch.ones(2, 5, 4, 4))
    assert hooks_on(model) == 0


@pytest.mark.parametrize(
    ("layer", "gives"), [("head", r"layer 'head' gives \(2, 3\)"), ("pool", r"layer 'pool' gives tuple")]
)
def test_a_layer_that_gives_no_feature_map(layer: str, gives: str) -> None:
    model = Branches()
    with pytest.raises(UserError, match=gives), Capture(model, [layer]):
        model(IMAGES)
    assert hooks_on(model) == 0


def test_a_layer_that_took_no_part() -> None:
    model = Branches()
    with Capture(model, ["idle"]) as capture:
        model(IMAGES)
        with pytest.raises(UserError, match="layer 'idle' took no part in the forward pass"):
            capture.activations()


def test_nothing_is_kept_after_leaving() -> None:
    model = Branches()
    with Capture(model, ["first"]) as capture:
        model(IMAGES)
    with pytest.raises(UserError):
        capture.activations()


def test_no_layers_at_all() -> None:
    with pytest.raises(UserError, match="name at least one"):
        Capture(Branches(), [])
