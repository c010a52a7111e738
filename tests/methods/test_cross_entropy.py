from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.methods import METHODS, CrossEntropy, CrossEntropySSL, Views
from gradmix.methods.cross_entropy import CrossEntropySettings, CrossEntropySSLSettings
from gradmix.models import LinearHead, ModelSettings, Network, build_encoder
from tests.reference.losses import nt_xent


def network() -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = build_encoder(ModelSettings("resnet10_16"), image_size=16, channels=3)
        return Network(encoder, encoder.dim, 12, head=LinearHead(12, 3)).double().train()


@pytest.fixture
def views() -> Views:
    generator = torch.Generator().manual_seed(1)
    v1, v2 = torch.randn(2, 8, 3, 16, 16, generator=generator, dtype=torch.float64)
    return Views(v1, v2, torch.arange(8) % 3)


def gradients(net: Network) -> Tensor:
    return torch.cat([p.grad.flatten() for p in net.parameters()])


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """−Σ_c q_c log p_c with q = (1 − ε)·one-hot + ε/C, image by image."""
    total = logits.new_zeros(())
    classes = logits.shape[1]
    for row, label in zip(logits, labels.tolist(), strict=True):
        log_p = row - row.exp().sum().log()
        for c in range(classes):
            q = smoothing / classes + (1 - smoothing) * (c == label)
            total = total - q * log_p[c]
    return total / len(logits)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_ce_is_cross_entropy_of_view_1(views: Views, smoothing: float) -> None:
    ours, plain = network(), network()
    losses = CrossEntropy(ours, CrossEntropySettings(smoothing)).step(views, torch.Generator(), scale=3.0)
    loss = cross_entropy(plain.classifier(plain(views.v1)), views.labels, smoothing)
    loss.backward()
    assert losses.keys() == {"loss"}
    assert float(losses["loss"]) == pytest.approx(loss.item(), abs=1e-12)
    torch.testing.assert_close(gradients(ours), 3 * gradients(plain), rtol=1e-9, atol=1e-12)


def test_the_convention_of_smoothing_is_the_settings(views: Views) -> None:
    """Over the others: ε of 3 classes is torch's 1.5 ε."""
    for kind, settings in ((CrossEntropy, CrossEntropySettings), (CrossEntropySSL, CrossEntropySSLSettings)):
        both = []
        for fields in ({"label_smoothing": 0.2, "smoothing_spread": "others"}, {"label_smoothing": 0.3}):
            both.append(kind(network(), settings(**fields)).step(views, torch.Generator())["loss"])
        assert float(both[0]) == pytest.approx(float(both[1]), abs=1e-12)
        with pytest.raises(UserError, match="did you mean 'others'"):
            settings(smoothing_spread="other")


def test_ce_ssl_is_the_sum_of_both_terms(views: Views) -> None:
    ours, plain = network(), network()
    settings = CrossEntropySSLSettings(theta=0.5, lam=2.0, simclr_temperature=0.4)
    losses = CrossEntropySSL(ours, settings).step(views, torch.Generator())
    z1, z2 = plain(views.v1), plain(views.v2)
    ce = cross_entropy(plain.classifier(torch.cat([z1, z2])), torch.cat([views.labels] * 2), 0.0)
    simclr = nt_xent(z1 / z1.norm(dim=1, keepdim=True), z2 / z2.norm(dim=1, keepdim=True), 0.4)
    loss = 0.5 * ce + 2.0 * simclr
    loss.backward()
    for name, value in {"loss": loss, "ce": ce, "simclr": simclr}.items():
        assert float(losses[name]) == pytest.approx(value.item(), abs=1e-10), name
    torch.testing.assert_close(gradients(ours), gradients(plain), rtol=1e-9, atol=1e-12)


def test_every_method_declares_what_it_needs() -> None:
    for name, method in METHODS.items():
        assert method.view_count in (1, 2), name
        method.Settings()  # defaults are a valid choice
