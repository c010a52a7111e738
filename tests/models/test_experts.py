"""The body of experts: nothing is there twice, one linear head gives the gated logits, heat maps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from gradmix.attribution import Capture, LayerCAM
from gradmix.errors import UserError
from gradmix.models import ENCODERS, Experts, Network, NetworkSpec, Plan, StagedEncoder
from gradmix.models.backbone import Backbone
from gradmix.recognition.explain import last_layer


def plan(encoder: str = "conv7_16", size: int = 16) -> Plan:
    def make_encoder(channels: int) -> StagedEncoder:
        return ENCODERS[encoder](channels, "small")

    return Plan(make_encoder, 3, size)


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("shared", ["stem", "conv2_2", "conv3_2"])
@pytest.mark.parametrize("encoder", ["conv7_16", "resnet8_16", "vgg32_plain"])
def test_one_expert_is_the_encoder_itself(encoder: str, shared: str) -> None:
    torch.manual_seed(0)
    plain = ENCODERS[encoder](3, "small").double()
    torch.manual_seed(0)
    body = Experts(plan(encoder), 1, shared, "shared").double()
    assert count_parameters(body.shared) + count_parameters(body.experts) == count_parameters(plain)
    x = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(body(x), plain(x))
    whole, cut = plain.state_dict(), {**body.shared.state_dict(), **body.experts[0].state_dict()}
    assert whole.keys() == cut.keys()


@pytest.mark.parametrize("gate", ["own", "shared"])
def test_every_parameter_is_used(gate: str) -> None:
    torch.manual_seed(0)
    body = Experts(plan(), 3, "conv2_2", gate)
    body(torch.randn(4, 3, 16, 16)).square().sum().backward()
    assert [name for name, p in body.named_parameters() if p.grad is None] == []


def test_experts_begin_as_copies_and_are_not_one() -> None:
    torch.manual_seed(0)
    body = Experts(plan(), 3)
    maps, weights = body.look(torch.randn(4, 3, 16, 16))
    assert torch.equal(maps[:, 0], maps[:, 2])
    torch.testing.assert_close(weights.sum(1), torch.ones(4))
    with torch.no_grad():
        next(body.experts[0].parameters()).zero_()
    maps, _ = body.look(torch.randn(4, 3, 16, 16))
    assert not torch.equal(maps[:, 0], maps[:, 1])
    assert torch.equal(maps[:, 1], maps[:, 2])


def test_the_gate_worked_out_by_hand() -> None:
    body = Experts(plan(), 3)
    last = body.gate[1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([100.0, 0.0, 0.0]))
    _, weights = body.look(torch.randn(1, 3, 16, 16))
    assert [round(w, 4) for w in weights[0].tolist()] == [0.5761, 0.2119, 0.2119]


def small_network(**settings: object) -> Network:
    torch.manual_seed(0)
    spec = NetworkSpec(
        "conv7_16",
        "small",
        3,
        16,
        "none",
        head={"kind": "linear", "classes": 4, "bias": False},
        body={"kind": "experts", "count": 3, "temperature": 0.1, **settings},
    )
    return NetworkSpec.from_description(spec.describe()).build()


def test_one_linear_head_gives_the_gated_logits() -> None:
    network = small_network().double()
    body, head = network.encoder, network.classifier
    assert isinstance(body, Experts)
    assert isinstance(head, nn.Linear)
    for p in body.experts.parameters():  # so that they differ
        nn.init.normal_(p, 0.0, 0.3)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    maps, weights = body.look(x)
    assert float((weights.detach() - 1 / 3).abs().max()) > 0.01
    gated = torch.zeros(2, 4, dtype=torch.float64)
    for i, block in enumerate(head.weight.split(body.expert_dim, dim=1)):
        class_maps = nn.functional.conv2d(maps[:, i], block[:, :, None, None])  # the 1×1 convolution
        gated += weights[:, i : i + 1] * class_maps.mean((2, 3))
    torch.testing.assert_close(network.answer(x).logits, gated)


def test_heat_maps_are_those_of_all_experts() -> None:
    network = small_network(shared="conv2_2").eval()
    assert last_layer(network) == ("conv4_2",)
    x = torch.randn(2, 3, 16, 16)
    with Capture(network, ["conv2_2", "expert2.conv3_2", "conv4_2"]) as capture:
        z = network(x)
        shared, second, last = capture.activations()
    assert (shared.shape, second.shape, last.shape) == ((2, 16, 8, 8), (2, 32, 4, 4), (2, 3 * 64, 2, 2))
    torch.testing.assert_close(last.mean((2, 3)), z)

    def logit(z: torch.Tensor) -> torch.Tensor:
        logits = network.logits(z)
        assert logits is not None
        return logits.amax(1)

    assert LayerCAM(network, "conv4_2")(x, logit).shape == (2, 16, 16)


def test_the_settings_that_no_weight_tells_are_in_its_name() -> None:
    assert "T=0.1" in repr(small_network().encoder)
    assert repr(small_network().encoder) != repr(small_network(temperature=1.0).encoder)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Experts(plan(), 3, "conv4_2"), "conv4_2 is the last layer"),
        (lambda: Experts(plan(), 3, "conv22"), "no shared 'conv22'; did you mean 'conv2_2'"),
        (lambda: Experts(plan(), 3, "stem", "ovn"), "did you mean 'own'"),
        (lambda: Experts(plan(), 0), "at least 1"),
        (lambda: small_network(kuont=3), "body 'experts' cannot be built from"),
        (
            lambda: Experts(Plan(lambda _: Backbone(nn.Conv2d(3, 4, 3)), 3, 16)),  # type: ignore[arg-type, return-value]
            "method medaf enters the encoder at its layers",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make()
