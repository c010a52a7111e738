"""Encoders entered and left at every layer, the network of the literature, two BatchNorms in one network."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradmix.attribution import Capture
from gradmix.errors import UserError
from gradmix.models import ENCODERS, VGG32, Domain, ModelSettings, Network, build_encoder, require_stages
from gradmix.models.backbone import Backbone

SOME = ("resnet18", "resnet50", "resnet8_16", "conv7_16", "vgg32", "vgg32_plain")


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("stem", ["small", "imagenet"])
def test_until_a_layer_and_from_it_is_the_whole(name: str, stem: str) -> None:
    torch.manual_seed(0)
    encoder = ENCODERS[name](3, stem).eval()
    x = torch.randn(2, 3, 32, 32)
    assert encoder.layer_names
    with torch.no_grad():
        whole = encoder(x)
        assert torch.equal(encoder.pool(encoder.maps(x)), whole)
        for layer in encoder.layer_names:
            at = encoder.forward_until(layer, x)
            with Capture(encoder, [layer]) as capture:
                encoder(x)
                assert torch.equal(at, capture.activations()[0])
            assert torch.equal(encoder.pool(encoder.forward_from(layer, at)), whole)
    with pytest.raises(UserError, match="no layer 'conv22'; did you mean 'conv2_2'"):
        encoder.forward_until("conv22", x)


@pytest.mark.parametrize("name", [*SOME, "efficientnet_lite0"])
def test_frozen_until_a_layer_trains_what_comes_after_it(name: str) -> None:
    for layer in ENCODERS[name](3, "small").layer_names:
        encoder = ENCODERS[name](3, "small")
        maps = encoder.forward_until(layer, torch.randn(2, 3, 32, 32)).detach().requires_grad_()
        encoder.pool(encoder.forward_from(layer, maps)).sum().backward()
        after = {name for name, p in encoder.named_parameters() if p.grad is not None}
        encoder.freeze_until(layer)
        assert {name for name, p in encoder.named_parameters() if p.requires_grad} == after
        norms = {n: m for n, m in encoder.named_modules() if isinstance(m, nn.BatchNorm2d)}
        assert {n for n, m in norms.items() if m.training} == {n for n in norms if f"{n}.weight" in after}


def test_a_backbone_cannot_be_entered() -> None:
    backbone = Backbone(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    with pytest.raises(UserError, match="method proser enters the encoder at its layers, which Backbone"):
        require_stages(backbone, "proser")
    encoder = ENCODERS["conv7_16"](3, "small")
    assert require_stages(encoder, "proser") is encoder


def test_vgg32_is_the_network_of_the_literature() -> None:
    encoder = VGG32()
    shapes = [tuple(m.weight.shape) for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    widths = [3, 64, 64, 128, 128, 128, 128, 128, 128, 128]
    assert shapes == [(after, before, 3, 3) for before, after in itertools.pairwise(widths)]
    assert [m.stride for m in encoder.modules() if isinstance(m, nn.Conv2d)] == [(1, 1), (1, 1), (2, 2)] * 3
    assert encoder.maps(torch.zeros(2, 3, 32, 32)).shape == (2, 128, 4, 4)
    torch.manual_seed(0)
    x = torch.randn(4, 3, 32, 32)
    assert not torch.equal(encoder(x), encoder(x))  # dropout
    plain = ENCODERS["vgg32_plain"](3, "small")
    assert torch.equal(plain(x), plain(x))


def test_released_weights_load(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = VGG32()
    released = {f"module.{name}": value for name, value in made.state_dict().items()}
    released |= {"module.fc.weight": torch.zeros(20, 128)}
    released |= {f"module.bn10.{name}": value for name, value in nn.BatchNorm2d(128).state_dict().items()}
    torch.save(released, tmp_path / "released.pth")
    settings = ModelSettings("vgg32", init=str(tmp_path / "released.pth"))
    loaded = build_encoder(settings, 32, 3)
    for name, value in made.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def small_network() -> Network:
    torch.manual_seed(0)
    encoder = build_encoder(ModelSettings("conv7_16"), image_size=16, channels=3)
    return Network(encoder, 64, 8, "mlp").train()


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def test_a_domain_has_its_own_batch_norm_and_shares_the_rest() -> None:
    network, x = small_network(), torch.randn(6, 3, 16, 16)
    domain = Domain(network)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    norms = [(path, m) for path, m in network.named_modules() if "BatchNorm" in type(m).__name__]
    normal = {f"{path}.{name}" for path, m in norms for name, _ in m.named_parameters()}
    assert len(dict(domain.named_parameters())) == len(normal) > 0
    out = domain(x)
    assert torch.equal(out, small_network()(x))  # the copies begin as the network's own
    out.square().mean().backward()
    assert gradients(domain).keys() == dict(domain.named_parameters()).keys()
    reached = gradients(network).keys()
    assert reached == dict(network.named_parameters()).keys() - normal
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name  # its own statistics stay
    for buffer in domain.running_buffers():
        assert not torch.equal(buffer, torch.zeros_like(buffer))
        assert not torch.equal(buffer, torch.ones_like(buffer))
    assert len(domain.running_buffers()) == len(normal)
    # As a part of a module it is trained and saved, and the network is not there twice.
    owner = nn.ModuleDict({"network": network, "domain": domain})
    assert len(list(owner.parameters())) == len(list(network.parameters())) + len(normal)
