"""MoCo: its gradient, its momentum copy, its queue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from gradmix.errors import UserError
from gradmix.methods import METHODS, Context, Embed, MoCo, Views
from gradmix.methods.moco import MoCoSettings, update_key_network
from gradmix.mixing import MixDraws, Mixed, Mixer
from gradmix.models import ModelSettings, Network, build_encoder
from tests.reference.moco_step import NaiveMoCo

# Milder than a recipe's, so that every term has a gradient worth comparing and the key network moves.
BASE = MoCoSettings(
    moco_temperature=0.4, mixed_temperature=0.3, queue_size=20, key_momentum=0.9, layers=("conv4_2",)
)
THREE = ("conv3_2", "conv4_2", "conv5_2")
ARMS = [
    replace(BASE, mixer=mixer, mix_weight=weight)
    for mixer, weight in product(("gradmix", "cutmix", "mixup"), ("area", "complement"))
] + [
    replace(BASE, mixer="none"),
    replace(BASE, layers=THREE, gamma_per="batch", locate="window"),
    replace(BASE, attribution_sign="evidence"),
]


def small_network(dtype: torch.dtype = torch.float64) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = build_encoder(ModelSettings("resnet10_16"), image_size=16, channels=3)
        return Network(encoder, encoder.dim, 12).to(dtype).train()


def some_views(seed: int = 1, n: int = 8) -> Views:
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(n, 3, 16, 16, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, n, 3, 16, 16, generator=generator, dtype=torch.float64)
    return Views(image + 0.3 * noise[0], image + 0.3 * noise[1], torch.arange(n) % 3)


def gradients(network: Network) -> Tensor:
    return torch.cat([p.grad.flatten() for p in network.parameters()])


def everything(network: Network) -> Tensor:
    return torch.cat([value.double().flatten() for value in network.state_dict().values()])


def in_order(method: MoCo) -> Tensor:
    """The queue from the oldest to the newest key."""
    return method.queue.roll(-int(method.pointer), 0)


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
            self.maps.append(maps)
        return self.mixer.apply(images, partners, maps, draws)


@pytest.mark.parametrize(
    "settings", ARMS, ids=lambda s: f"{s.mixer}-{s.mix_weight}-{len(s.layers)}-{s.attribution_sign}"
)
def test_four_steps_equal_the_pseudo_code(settings: MoCoSettings) -> None:
    """Losses, gradients, maps, key network, queue: step by step, and around the end of the queue."""
    quick, slow = small_network(), small_network()
    method = MoCo(quick, settings)
    naive = NaiveMoCo(slow, settings, method.queue)
    maps: list[Tensor] = []
    if method.mixer is not None:
        method.mixer = Spy(method.mixer, method.mixer.needs_maps, maps)
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.05) for n in (quick, slow)]
    for number in range(4):  # 4 × 8 keys in a queue of 20
        views = some_views(number)
        for optimizer in optimizers:
            optimizer.zero_grad()
        losses = method.step(views, torch.Generator().manual_seed(number))
        wanted = naive.step(views, torch.Generator().manual_seed(number))
        assert losses.keys() == wanted.keys()
        for name, value in losses.items():
            assert float(value) == pytest.approx(float(wanted[name]), abs=1e-9), name
            assert not value.requires_grad
        # Four steps of a network amplify the last bits; the first is compared as closely as it can be.
        tight = {"rtol": 1e-9, "atol": 1e-11} if number == 0 else {"rtol": 1e-5, "atol": 1e-7}
        torch.testing.assert_close(gradients(quick), gradients(slow), **tight)
        torch.testing.assert_close(in_order(method), torch.stack(naive.queue), **tight)
        torch.testing.assert_close(everything(method.key_network), everything(naive.key_network), **tight)
        for optimizer in optimizers:
            optimizer.step()
        naive.after_the_optimisers_step()
    assert len(maps) == len(naive.maps) == (4 if settings.mixer == "gradmix" else 0)
    for ours, theirs in zip(maps, naive.maps, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)
        assert ours.amax() > 0  # else this compares nothing


@pytest.mark.parametrize("mixer", ["gradmix", "none"])
def test_scale_multiplies_the_gradient_and_nothing_else(mixer: str) -> None:
    plain, scaled = small_network(), small_network()
    settings = replace(BASE, mixer=mixer)
    one, other = MoCo(plain, settings), MoCo(scaled, settings)
    losses = one.step(some_views(), torch.Generator().manual_seed(3))
    same = other.step(some_views(), torch.Generator().manual_seed(3), scale=1024.0)
    assert {k: float(v) for k, v in losses.items()} == {k: float(v) for k, v in same.items()}
    torch.testing.assert_close(gradients(scaled), 1024 * gradients(plain), rtol=1e-12, atol=0)
    assert torch.equal(one.queue, other.queue)


@pytest.mark.parametrize(("mixer", "passes"), [("gradmix", 2), ("cutmix", 2), ("none", 1)])
def test_each_query_view_goes_through_the_network_once(mixer: str, passes: int) -> None:
    network = small_network()
    forward, backward, key = [], [], []
    method = MoCo(network, replace(BASE, mixer=mixer))
    network.encoder.register_forward_hook(lambda *_: forward.append(1))
    network.encoder.conv1.register_forward_hook(
        lambda module, inputs, output: output.register_hook(lambda gradient: backward.append(1)) and None
    )
    method.key_network.encoder.register_forward_hook(lambda *_: key.append(1))
    method.step(some_views(), torch.Generator().manual_seed(0))
    assert (len(forward), len(backward), len(key)) == (passes, passes, 1)
    assert all(p.grad is None for p in method.key_network.parameters())


def test_labels_are_not_used() -> None:
    views = some_views()
    one, other = MoCo(small_network(), BASE), MoCo(small_network(), BASE)
    a = one.step(views, torch.Generator().manual_seed(0))
    b = other.step(replace(views, labels=torch.zeros(8, dtype=torch.long)), torch.Generator().manual_seed(0))
    assert a == b


def test_the_copy_does_not_move_while_the_query_stands_still() -> None:
    query, key = small_network(torch.float32), small_network(torch.float32)
    before = everything(key)
    update_key_network(key, query, 0.999)
    assert torch.equal(everything(key), before)
    with torch.no_grad():
        query.projection.bias += 1
    old = key.projection.bias.clone()
    update_key_network(key, query, 0.75)
    torch.testing.assert_close(key.projection.bias, old + 0.25)
    update_key_network(key, query, 0.0)
    assert torch.equal(key.projection.bias, query.projection.bias)


@pytest.mark.parametrize("n", [3, 4, 5, 9])
def test_the_queue_keeps_the_newest_keys(n: int) -> None:
    """Also where the batch does not divide it, and where the batch is larger."""
    method = MoCo(small_network(), replace(BASE, queue_size=5))
    wanted = list(method.queue)
    for number in range(6):
        keys = torch.full((n, 12), float(number), dtype=torch.float64)
        keys += torch.arange(n)[:, None] / 100
        method._enqueue(keys)
        wanted = [*wanted, *keys][-5:]
        assert torch.equal(in_order(method), torch.stack(wanted))


def test_the_queue_starts_from_the_generator_alone() -> None:
    def queue(seed: int) -> Tensor:
        return MoCo(small_network(), BASE, Context(generator=torch.Generator().manual_seed(seed))).queue

    before = torch.get_rng_state()
    assert torch.equal(queue(1), queue(1))
    assert not torch.equal(queue(1), queue(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert queue(1).dtype == torch.float64
    torch.testing.assert_close(queue(1).norm(dim=1), torch.ones(20, dtype=torch.float64))


def test_both_networks_are_called_as_the_trainer_wants() -> None:
    called: list[nn.Module] = []

    def embedder(network: nn.Module) -> Embed:
        def embed(images: Tensor) -> Tensor:
            called.append(network)
            z: Tensor = network(images)
            return z

        return embed

    method = MoCo(small_network(), BASE, Context(call=embedder))
    method.step(some_views(), torch.Generator().manual_seed(0))
    assert called == [method.key_network, method.network, method.network]


def test_state_carries_over_what_the_next_step_depends_on() -> None:
    one = MoCo(small_network(), BASE)
    one.step(some_views(), torch.Generator().manual_seed(0))
    saved = {name: value.clone() for name, value in one.state_dict().items()}
    other = MoCo(small_network(), BASE, Context(generator=torch.Generator().manual_seed(9)))
    other.load_state_dict(saved)
    a = one.step(some_views(2), torch.Generator().manual_seed(1))
    b = other.step(some_views(2), torch.Generator().manual_seed(1))
    assert a == b
    ours, theirs = one.state_dict(), other.state_dict()
    assert {"queue", "pointer"} < ours.keys()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("queue_size", 0, "queue_size must be positive"),
        ("key_momentum", 1.5, "key_momentum must lie between 0 and 1"),
        ("moco_temperature", 0.0, "moco_temperature must be positive"),
        ("mixer", "gradmx", "did you mean 'gradmix'"),
        ("gamma_min", 0.9, "gamma_min <= gamma_max"),
    ],
)
def test_wrong_settings_are_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        MoCoSettings(**{field: value})


def test_a_misspelt_layer_is_found_before_training() -> None:
    with pytest.raises(UserError, match="no layer 'conv52'; did you mean 'conv5_2'"):
        MoCo(small_network(), replace(BASE, layers=("conv52",)))


def test_stateless_methods_have_no_state() -> None:
    for name in ("gradmix", "ce"):
        method = METHODS[name](small_network(), METHODS[name].Settings())
        assert all(key.startswith("network.") for key in method.state_dict())
