"""Attentive CutMix: the loss of mixed labels, from weights made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from gradmix.errors import UserError
from gradmix.methods import Views
from gradmix.methods.attentive_cutmix import AttentiveCutMix, AttentiveCutMixSettings
from gradmix.mixing import derangement
from gradmix.mixing.attentive import attentive_cells, paste_cells
from gradmix.models import LinearHead, ModelSettings, Network, build_encoder
from gradmix.training import train
from tests.training.tiny import tiny_images, tiny_recipe


@pytest.fixture
def weights(tmp_path: Path) -> str:
    """A file as published ones are: an ImageNet stem, torchvision's names, a classifier left over."""
    torch.manual_seed(0)
    encoder = build_encoder(ModelSettings(encoder="resnet8_16", stem="imagenet"), 64, 3)
    torch.save(encoder.state_dict() | {"fc.weight": torch.zeros(2, 64)}, tmp_path / "weights.pth")
    return str(tmp_path / "weights.pth")


def settings(init: str) -> AttentiveCutMixSettings:
    return AttentiveCutMixSettings(init, "resnet8_16", attention_size=64)


def network(channels: int = 3) -> Network:
    torch.manual_seed(1)
    encoder = build_encoder(ModelSettings(encoder="resnet8_16", stem="half"), 16, channels)
    return Network(encoder, 64, 16, head=LinearHead(16, 3))


def views(channels: int = 3) -> Views:
    v1 = torch.randn(6, channels, 16, 16, generator=torch.Generator().manual_seed(2))
    return Views(v1, v1, torch.tensor([0, 1, 2, 0, 1, 2]))


@pytest.mark.parametrize("channels", [1, 3])
def test_the_step_is_the_naive_one(weights: str, channels: int) -> None:
    net, batch = network(channels), views(channels)
    method = AttentiveCutMix(net, settings(weights))
    net.train()
    found = method.step(batch, torch.Generator().manual_seed(5))["loss"]
    got = [p.grad.clone() for p in net.parameters() if p.grad is not None]

    net.zero_grad()
    partner = derangement(6, torch.Generator().manual_seed(5))
    of_a = batch.v1[partner]
    cells = attentive_cells(method._features(of_a))
    logits = net.logits(net(paste_cells(batch.v1, of_a, cells)))
    assert logits is not None
    one_hot = F.one_hot(batch.labels, 3).float()
    soft = 6 / 49 * one_hot[partner] + 43 / 49 * one_hot
    loss = -(soft * logits.log_softmax(1)).sum(1).mean()
    loss.backward()
    assert float(found) == pytest.approx(float(loss.detach()), abs=1e-6)
    for a, b in zip(got, [p.grad for p in net.parameters() if p.grad is not None], strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_the_attending_network_is_never_trained(weights: str) -> None:
    method = AttentiveCutMix(network(), settings(weights))
    before = {name: value.clone() for name, value in method.attending.state_dict().items()}
    method.step(views(), torch.Generator().manual_seed(0))
    assert not method.attending.training
    for name, value in method.attending.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_other_weights_cut_elsewhere(weights: str) -> None:
    images = views().v1
    cells = [
        attentive_cells(AttentiveCutMix(network(), settings(init))._features(images))
        for init in (weights, "random")
    ]
    assert not torch.equal(*cells)


def test_it_trains_from_a_recipe(weights: str) -> None:
    recipe = tiny_recipe(
        method="attentive-cutmix",
        attention_init=weights,
        attention_encoder="resnet8_16",
        attention_size=64,
        normalize="imagenet",
    )
    trained = train(tiny_images(), recipe)
    assert trained.steps == 8
    again = train(tiny_images(), recipe)
    for a, b in zip(trained.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_weights_that_a_package_carries_attend() -> None:
    fields: dict[str, Any] = {"attention_init": "pretrained", "attention_encoder": "efficientnet_lite0"}
    fields["attention_size"] = 64
    method = AttentiveCutMix(network(), AttentiveCutMixSettings(**fields))
    assert method._features(views().v1).shape == (6, 1280, 2, 2)
    published = build_encoder(ModelSettings("efficientnet_lite0", init="pretrained"), 64, 3).state_dict()
    found = method.attending.state_dict()
    assert all(torch.equal(value, found[name]) for name, value in published.items())
    recipe = tiny_recipe(method="attentive-cutmix", normalize="tf", max_steps=1, **fields)
    assert train(tiny_images(), recipe).steps == 1


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "attentive-cutmix needs a trained network: --attention-init FILE .* pretrained"),
        ({"attention_init": "gone.pth"}, "no file gone.pth"),
    ],
)
def test_weights_that_are_not_there(fields: dict[str, str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        train(tiny_images(), tiny_recipe(method="attentive-cutmix", **fields))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"attention_encoder": "resnet19"}, "did you mean 'resnet18'"),
        ({"attention_cells": 49}, "from 1 to 48"),
        ({"attention_size": 4}, "at least 8"),
    ],
)
def test_settings_are_checked(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        AttentiveCutMixSettings(**fields)  # type: ignore[arg-type]
