"""The decoder under the condition of a class: errors by hand, and what memory it needs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gradmix.detection import Outputs, make_detector
from gradmix.errors import UserError
from gradmix.models import ConditionalDecoder, Network, NetworkSpec, Sizes
from gradmix.models.conditional_decoder import reconstruction_errors

SIZES = Sizes(feature_dim=16, num_classes=5, channels=3, image_size=16)


def network(**probe: Any) -> Network:
    torch.manual_seed(0)
    made = {"kind": "conditional-decoder", "latent": 64, "width": 16, **probe}
    head = {"kind": "linear", "classes": 5}
    spec = NetworkSpec("conv7_16", "small", 3, 16, feature_dim=16, head=head, probe=made)
    return NetworkSpec.from_description(spec.describe()).build().eval()


def test_the_case_worked_out_by_hand() -> None:
    x = torch.tensor([[[[0.0, 1.0]]]], dtype=torch.float64)
    drawn = torch.tensor([[[[0.1, 0.8]]], [[[0.5, 0.5]]]], dtype=torch.float64)
    errors = reconstruction_errors(x.expand(2, 1, 1, 2), drawn)
    assert errors.tolist() == pytest.approx([0.15, 0.5])
    features, logits = torch.zeros(1, 1), torch.tensor([[0.0, 3.0]])
    outputs = Outputs(features, torch.tensor([-1]), logits, {"errors": errors[None]})
    scores = make_detector("reconstruction").score(outputs)
    assert scores.score.tolist() == pytest.approx([-0.15])
    assert scores.label.tolist() == [1]  # the classifier's, though class 0 is drawn better


def test_without_modulation_no_condition_matters() -> None:
    net = network()
    probe = net.probe
    assert isinstance(probe, ConditionalDecoder)
    x = torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        assert float(net.answer(x).extra["errors"].std(1).min()) > 0
        for layer in (probe.gain, probe.shift):
            nn.init.zeros_(layer.weight)
        nn.init.ones_(probe.gain.bias)
        nn.init.zeros_(probe.shift.bias)
        errors = net.answer(x).extra["errors"]
        plain = probe.decoder(probe.encode(net, x))
    torch.testing.assert_close(errors, errors[:, :1].expand(-1, 5))
    torch.testing.assert_close(errors[:, 0], reconstruction_errors(x, plain))


@pytest.mark.parametrize("together", [1, 7, 8, 1000])
def test_errors_are_those_of_one_class_at_a_time(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network().double()
    probe = net.probe
    assert isinstance(probe, ConditionalDecoder)
    monkeypatch.setattr("gradmix.models.conditional_decoder._TOGETHER", together)
    drawn: list[int] = []
    probe.decoder.register_forward_hook(lambda module, given, made: drawn.append(len(made)))
    x = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        errors = net.answer(x).extra["errors"]
        assert max(drawn) <= max(4, together)
        maps = probe.encode(net, x)
        for k in range(5):
            condition = torch.full((5,), -1.0, dtype=torch.float64)
            condition[k] = 1.0
            gain = probe.gain.weight @ condition + probe.gain.bias
            shift = probe.shift.weight @ condition + probe.shift.bias
            for i in range(4):
                image = probe.decoder((gain * maps[i].flatten() + shift).view(1, *maps.shape[1:]))
                assert float(errors[i, k]) == pytest.approx(float((x[i] - image[0]).abs().mean()), rel=1e-9)


def test_it_is_built_again_from_its_description() -> None:
    probe = ConditionalDecoder(SIZES, latent=8, width=16)
    assert probe.describe() == {"kind": "conditional-decoder", "latent": 8, "width": 16}
    with pytest.raises(UserError, match="probe 'conditional-decoder' cannot be built"):
        network(depth=3)


def test_an_encoder_without_maps_is_refused() -> None:
    probe = ConditionalDecoder(SIZES, latent=8, width=16)
    plain = Network(nn.Flatten(), 12, 12, "none")
    with pytest.raises(UserError, match="method c2ae enters the encoder"):
        probe(plain, torch.zeros(1, 3, 2, 2), torch.zeros(1, 12))
