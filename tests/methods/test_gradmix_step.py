"""The cached-gradient step against the sum of losses, in float64: the same gradient, maps and statistics."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.methods import GradMixMethod, Views
from gradmix.methods.gradmix import GradMixSettings
from gradmix.mixing import MixDraws, Mixed, Mixer
from gradmix.models import ModelSettings, Network, build_encoder
from tests.reference.gradmix_step import naive_step

# Milder temperatures than a recipe's, so that every term has a gradient worth comparing.
BASE = GradMixSettings(
    theta=0.7,
    lam=1.3,
    supcon_temperature=0.5,
    simclr_temperature=0.4,
    mixed_temperature=0.3,
    layers=("conv4_2",),
)
ONE, THREE = ("conv4_2",), ("conv3_2", "conv4_2", "conv5_2")
GRADMIX = [
    replace(BASE, pairing=p, target=t, layers=layers, mix_weight=w, gamma_per=g)
    for p, t, layers, w, g in product(
        ("cross", "symmetric"),
        ("objective", "ssl", "similarity"),
        (ONE, THREE),
        ("area", "complement"),
        ("sample", "batch"),
    )
]
OTHERS = [
    replace(BASE, mixer=m, pairing=p, mix_weight=w, gamma_per=g)
    for m, p, w, g in product(
        ("cutmix", "mixup"), ("cross", "symmetric"), ("area", "complement"), ("sample", "batch")
    )
]
PLAIN = [
    replace(BASE, mixer="none"),
    replace(BASE, mixer="none", pairing="symmetric", supcon_denominator="all"),
    replace(BASE, theta=0.0),
    replace(BASE, lam=0.0),
    replace(BASE, theta=0.0, pairing="symmetric", target="ssl"),
    replace(BASE, locate="window", supcon_denominator="all"),
    replace(BASE, mixer="cutmix", alpha=0.7, patch="crop"),
]
EVIDENCE = [
    replace(BASE, attribution_sign="evidence", pairing=p, target=t)
    for p, t in product(("cross", "symmetric"), ("objective", "ssl", "similarity"))
]


def label(s: GradMixSettings) -> str:
    words = (s.mixer, s.pairing, s.target, len(s.layers), s.mix_weight, s.gamma_per, s.theta, s.lam)
    return "-".join(map(str, (*words, s.attribution_sign)))


def small_network(dtype: torch.dtype = torch.float64, seed: int = 0) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = build_encoder(ModelSettings("resnet10_16"), image_size=16, channels=3)
        return Network(encoder, encoder.dim, 12).to(dtype).train()


def some_views(n: int = 8, dtype: torch.dtype = torch.float64, seed: int = 1) -> Views:
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(n, 3, 16, 16, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, n, 3, 16, 16, generator=generator, dtype=torch.float64)
    v1, v2 = (image + 0.3 * noise).to(dtype)
    return Views(v1, v2, torch.arange(n) % 3)


def gradients(network: Network) -> Tensor:
    return torch.cat([p.grad.flatten() for p in network.parameters()])


def buffers(network: Network) -> Tensor:
    return torch.cat([b.double().flatten() for b in network.buffers()])


@dataclass
class Spy(Mixer):
    """A mixer that remembers the maps it was given."""

    mixer: Mixer
    needs_maps: bool
    maps: list[Tensor]

    def draw(self, n: int, generator: torch.Generator) -> MixDraws:
        return self.mixer.draw(n, generator)

    def apply(self, images: Tensor, partners: Tensor, maps: Tensor | None, draws: MixDraws) -> Mixed:
        if maps is not None:
            assert not maps.requires_grad
            self.maps.append(maps)
        return self.mixer.apply(images, partners, maps, draws)


def spied(method: GradMixMethod) -> list[Tensor]:
    maps: list[Tensor] = []
    if method.mixer is not None:
        method.mixer = Spy(method.mixer, method.mixer.needs_maps, maps)
    return maps


def in_the_fast_run(settings: GradMixSettings) -> bool:
    """Half of the product: each choice with each other one, but not all of them at once."""
    return (settings.mix_weight, settings.gamma_per) in (("area", "sample"), ("complement", "batch"))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(s, marks=[] if in_the_fast_run(s) else [pytest.mark.slow], id=label(s))
        for s in (*GRADMIX, *OTHERS, *PLAIN, *EVIDENCE)
    ],
)
def test_the_gradient_is_that_of_the_naive_sum(settings: GradMixSettings) -> None:
    quick, naive, views = small_network(), small_network(), some_views()
    method = GradMixMethod(quick, settings)
    maps = spied(method)
    losses = method.step(views, torch.Generator().manual_seed(5))
    wanted = naive_step(naive, settings, views, torch.Generator().manual_seed(5))

    assert len(maps) == len(wanted.maps)
    for ours, theirs in zip(maps, wanted.maps, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-9)
        assert ours.amax() > 0  # else this compares nothing
    assert losses.keys() == wanted.losses.keys()
    for name, value in losses.items():
        assert float(value) == pytest.approx(float(wanted.losses[name]), abs=1e-10), name
        assert not value.requires_grad
    torch.testing.assert_close(gradients(quick), gradients(naive), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(buffers(quick), buffers(naive), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("target", ["objective", "ssl", "similarity"])
def test_the_two_signs_look_at_different_places_unless_it_is_a_similarity(target: str) -> None:
    found = {}
    for sign in ("printed", "evidence"):
        method = GradMixMethod(small_network(), replace(BASE, target=target, attribution_sign=sign))
        maps = spied(method)
        method.step(some_views(), torch.Generator().manual_seed(5))
        found[sign] = maps[0]
    assert torch.equal(found["printed"], found["evidence"]) == (target == "similarity")


@pytest.mark.parametrize("pairing", ["cross", "symmetric"])
@pytest.mark.parametrize("n", [3, 12])
def test_other_batch_sizes(pairing: str, n: int) -> None:
    settings = replace(BASE, pairing=pairing)
    quick, naive, views = small_network(), small_network(), some_views(n)
    GradMixMethod(quick, settings).step(views, torch.Generator().manual_seed(2))
    naive_step(naive, settings, views, torch.Generator().manual_seed(2))
    torch.testing.assert_close(gradients(quick), gradients(naive), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("pairing", ["cross", "symmetric"])
def test_in_float32(pairing: str) -> None:
    settings = replace(BASE, pairing=pairing, layers=THREE)
    quick, naive = small_network(torch.float32), small_network(torch.float32)
    views = some_views(dtype=torch.float32)
    GradMixMethod(quick, settings).step(views, torch.Generator().manual_seed(5))
    naive_step(naive, settings, views, torch.Generator().manual_seed(5))
    largest = gradients(naive).abs().max()
    assert (gradients(quick) - gradients(naive)).abs().max() < 1e-5 * largest


@pytest.mark.parametrize("pairing", ["cross", "symmetric"])
@pytest.mark.parametrize("mixer", ["gradmix", "cutmix", "none"])
@pytest.mark.parametrize("target", ["objective", "ssl"])
def test_scale_multiplies_the_gradient_and_nothing_else(pairing: str, mixer: str, target: str) -> None:
    settings = replace(BASE, pairing=pairing, mixer=mixer, target=target)
    plain, scaled, views = small_network(), small_network(), some_views()
    one, other = GradMixMethod(plain, settings), GradMixMethod(scaled, settings)
    maps, scaled_maps = spied(one), spied(other)
    losses = one.step(views, torch.Generator().manual_seed(3))
    same = other.step(views, torch.Generator().manual_seed(3), scale=1024.0)
    assert {k: float(v) for k, v in losses.items()} == {k: float(v) for k, v in same.items()}
    torch.testing.assert_close(gradients(scaled), 1024 * gradients(plain), rtol=1e-12, atol=0)
    for a, b in zip(maps, scaled_maps, strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_add_up_over_steps() -> None:
    network, views = small_network(), some_views()
    network.eval()  # running statistics: both steps then see the same network
    method = GradMixMethod(network, BASE)
    method.step(views, torch.Generator().manual_seed(3))
    once = gradients(network).clone()
    method.step(views, torch.Generator().manual_seed(3))
    torch.testing.assert_close(gradients(network), 2 * once, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("mixer", "pairing", "target", "passes"),
    [
        ("gradmix", "cross", "objective", 3),
        ("gradmix", "cross", "ssl", 3),
        ("gradmix", "cross", "similarity", 3),
        ("cutmix", "cross", "objective", 3),
        ("mixup", "cross", "objective", 3),
        ("gradmix", "symmetric", "objective", 4),
        ("gradmix", "symmetric", "ssl", 4),
        ("cutmix", "symmetric", "objective", 4),
        ("none", "cross", "objective", 2),
        ("none", "symmetric", "objective", 2),
    ],
)
def test_each_view_goes_through_the_network_once(mixer: str, pairing: str, target: str, passes: int) -> None:
    network = small_network()
    forward: list[int] = []
    backward: list[int] = []
    # A gradient reaches the first convolution's output once for each backward through the whole encoder:
    # a second pass for the maps must stop at their layers, and not show here.
    network.encoder.register_forward_hook(lambda *_: forward.append(1))
    network.encoder.conv1.register_forward_hook(
        lambda module, inputs, output: output.register_hook(lambda gradient: backward.append(1)) and None
    )
    GradMixMethod(network, replace(BASE, mixer=mixer, pairing=pairing, target=target)).step(
        some_views(), torch.Generator().manual_seed(0)
    )
    assert len(forward) == passes
    assert len(backward) == passes


def test_terms_without_weight_are_dropped() -> None:
    views = some_views()
    losses = GradMixMethod(small_network(), replace(BASE, theta=0.0)).step(views, torch.Generator())
    assert losses.keys() == {"loss", "simclr", "mixed"}
    method = GradMixMethod(small_network(), replace(BASE, lam=0.0, layers=("no such layer",)))
    assert method.step(views, torch.Generator()).keys() == {"loss", "supcon"}  # no mixer, so no layers


def test_hooks_are_gone_after_a_step() -> None:
    network = small_network()
    GradMixMethod(network, replace(BASE, layers=THREE)).step(some_views(), torch.Generator())
    assert not any(module._forward_hooks for module in network.modules())


def test_the_views_are_left_as_they_were() -> None:
    views = some_views()
    before = copy.deepcopy(views)
    GradMixMethod(small_network(), BASE).step(views, torch.Generator())
    assert torch.equal(views.v1, before.v1)
    assert torch.equal(views.v2, before.v2)


def test_a_misspelt_layer_is_found_before_training() -> None:
    with pytest.raises(UserError, match="no layer 'conv52'; did you mean 'conv5_2'"):
        GradMixMethod(small_network(), replace(BASE, layers=("conv52",)))


def test_a_batch_of_one_has_no_partner() -> None:
    with pytest.raises(UserError, match="at least 2 images"):
        GradMixMethod(small_network(), BASE).step(some_views(1), torch.Generator())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("mixer", "gradmx", "did you mean 'gradmix'"),
        ("pairing", "crss", "did you mean 'cross'"),
        ("mix_weight", "aera", "did you mean 'area'"),
        ("target", "objectiv", "did you mean 'objective'"),
        ("attribution", "layerkam", "did you mean 'layercam'"),
        ("attribution_sign", "evidense", "did you mean 'evidence'"),
        ("supcon_denominator", "al", "did you mean 'all'"),
        ("map_normalize", "perlayer", "did you mean 'per_layer'"),
        ("locate", "peek", "did you mean 'peak'"),
        ("simclr_temperature", 0.0, "simclr_temperature must be positive"),
        ("theta", -1.0, "must not be negative"),
        ("gamma_min", 0.9, "gamma_min <= gamma_max"),
        ("alpha", -1.0, "alpha must be positive"),
    ],
)
def test_wrong_settings_are_refused(field: str, value: object, message: str) -> None:
    mixer = {"mixer": "cutmix"} if field == "alpha" else {}
    with pytest.raises(UserError, match=message):
        GradMixSettings(**{**mixer, field: value})
    with pytest.raises(UserError, match="nor both 0"):
        GradMixSettings(theta=0.0, lam=0.0)
