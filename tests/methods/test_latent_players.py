"""What OSRCI and G-OpenMax share: losses by hand, the order of the players, gradients, runs and files."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.methods import Progress, Views
from gradmix.methods import latent_players as players
from gradmix.methods.auxiliary import Auxiliary, descend_together
from gradmix.methods.latent_players import LatentPlayers, add_unknown, one_versus_rest, unknown_loss
from gradmix.models.latent_players import gradient_penalty
from gradmix.training import load_recipe, train
from gradmix.training.session import build_method
from gradmix.views import Normalizer
from tests.methods.saved_model import save_and_load
from tests.reference import latent_players as reference
from tests.training.interrupted import assert_equal_bits, saved, train_whole_and_stopped
from tests.training.tiny import tiny_images, tiny_recipe

IMAGES = tiny_images(8)  # 24 images: 3 steps per epoch, 3 in each stage
SMALL: dict[str, Any] = {
    **{"player_width": 4, "latent_channels": 4, "player_depth": 1, "made_images": 10, "player_lr": 0.01},
    **{"fine_tune_share": 0.5, "fine_tune_lr": 0.001, "log_every": 1},
}
OWN: dict[str, dict[str, Any]] = {"osrci": {"counterfactual_steps": 3}, "g-openmax": {"mix_tries": 8}}
BOTH = pytest.mark.parametrize("name", OWN)
NORMALIZER = Normalizer((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
PLAYERS = ("generator.", "latent_encoder.", "critic.")


def recipe_of(name: str, **fields: Any) -> Any:
    return tiny_recipe(**{"method": name, **SMALL, **OWN[name], **fields})


def make(name: str, **fields: Any) -> LatentPlayers:
    method = build_method(recipe_of(name, **fields), IMAGES.class_names, NORMALIZER)
    assert isinstance(method, LatentPlayers)
    return method


def views(stage: str = "players") -> Views:
    x = NORMALIZER(IMAGES.images[::2]).contiguous(memory_format=torch.channels_last)
    return Views(x, x, IMAGES.labels[::2], Progress(stage=stage))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def random_logits(n: int = 7) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 3, generator=generator(), dtype=torch.float64), torch.arange(n) % 3


def test_losses_are_the_slow_ones() -> None:
    logits, labels = random_logits()
    made = logits.flip(0) * 2
    assert float(one_versus_rest(logits, labels)) == pytest.approx(reference.one_versus_rest(logits, labels))
    ours = F.cross_entropy(add_unknown(logits), labels) + unknown_loss(made).mean()
    assert float(ours) == pytest.approx(reference.fine_tuning_loss(logits, labels, made), rel=1e-12)


def test_the_unknown_has_the_logit_zero() -> None:
    p = add_unknown(torch.tensor([[2.0, 0.0]])).softmax(1)[0]
    assert [round(float(v), 4) for v in p] == [0.787, 0.1065, 0.1065]
    assert float(unknown_loss(torch.tensor([[2.0, 0.0]]))[0]) == pytest.approx(-float(p[2].log()))


@BOTH
def test_a_step_of_the_players_is_the_one_written_out(name: str) -> None:
    """Four Adams, one after the other, in the order of the text."""
    method, plain = make(name).double(), make(name).double()
    v = views()
    x = v.v1.double()
    found = method.train_players(x, generator())

    source = generator()
    noise = torch.randn(12, 4, 4, 4, generator=source).double()
    share = torch.rand(12, 1, 1, 1, generator=source).double()
    g, e, d = plain.generator.module, plain.latent_encoder.module, plain.critic.module
    adams = {m: torch.optim.Adam(m.parameters(), 0.01, (0.5, 0.999)) for m in (g, e, d)}

    def descend(loss: Tensor, *who: Any) -> float:
        plain.zero_grad()
        loss.backward()
        for module in who:
            adams[module].step()
        return float(loss.detach())

    def seen(z: Tensor) -> Tensor:
        return NORMALIZER(torch.sigmoid(g(z)))

    fake = seen(noise / noise.norm(dim=1, keepdim=True)).detach()
    between = share * x + (1 - share) * fake
    loss = F.softplus(d(fake)).mean() + 0.01 * F.softplus(-d(x)).mean() + 10 * gradient_penalty(d, between)
    assert descend(loss, d) == pytest.approx(float(found["critic"]), rel=1e-6)
    z = e(x)
    z = z / z.norm(dim=1, keepdim=True)
    assert descend(-0.01 * d(seen(z.detach())).mean(), g) == pytest.approx(
        float(found["generator"]), rel=1e-5
    )
    error = descend((x - seen(z)).abs().mean(), e, g)
    assert error == pytest.approx(float(found["reconstruction"]), rel=1e-6)
    theirs = plain.state_dict()
    for key, value in method.state_dict().items():
        if isinstance(value, Tensor) and "num_batches" not in key:
            torch.testing.assert_close(value, theirs[key], rtol=1e-6, atol=1e-7, msg=key)


@BOTH
def test_a_step_leaves_gradients_in_the_network_only(name: str) -> None:
    method = make(name)
    before = deepcopy(method.state_dict())
    found = method.step(views(), generator())
    v = views()
    for key, parameter in method.named_parameters():
        player = key.startswith(PLAYERS)
        assert (parameter.grad is None) == player, key
        assert torch.equal(parameter, before[key]) != player, key
    plain = make(name)
    wanted = one_versus_rest(plain.logits(plain.network(v.v1)), v.labels)
    assert float(found["loss"]) == pytest.approx(wanted.item(), rel=1e-6)


@BOTH
def test_fine_tuning_sees_real_and_made_images(name: str) -> None:
    method = make(name)
    method.made = IMAGES.images[:5]
    method.eval()  # so that the slow version, image by image, has the same statistics
    before = deepcopy(method.state_dict())
    v = views("fine-tune")
    found = method.step(v, generator())
    rows = torch.randint(5, (12,), generator=generator())
    with torch.no_grad():
        real, made = (method.logits(method.network(x)) for x in (v.v1, NORMALIZER(IMAGES.images[:5][rows])))
    wanted = reference.fine_tuning_loss(real.double(), v.labels, made.double())
    assert float(found["loss"]) == pytest.approx(wanted, rel=1e-5)
    assert all(p.grad is None for key, p in method.named_parameters() if key.startswith(PLAYERS))
    assert_equal_bits(before, method.state_dict())


def test_two_players_descend_from_the_same_place() -> None:
    from gradmix.distributed import SINGLE_PROCESS

    one, two = (Auxiliary(torch.nn.Linear(2, 2), 0.1, (0.5, 0.9), SINGLE_PROCESS) for _ in range(2))
    a, b = deepcopy(one.module), deepcopy(two.module)
    adams = [torch.optim.Adam(m.parameters(), 0.1, (0.5, 0.9)) for m in (a, b)]
    for _ in range(3):
        x = torch.randn(4, 2)
        descend_together(two(one(x)).square().mean(), [one, two])
        b(a(x)).square().mean().backward()
        for adam in adams:
            adam.step()
            adam.zero_grad()
    torch.testing.assert_close(one.module.weight, a.weight)
    torch.testing.assert_close(two.module.weight, b.weight)
    assert one.module.weight.grad is None


@BOTH
@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_stopped_and_resumed(name: str, stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(name)
    whole, _ = train_whole_and_stopped(IMAGES, recipe, stop, tmp_path, monkeypatch)
    made = saved(whole)["method"]["made"]
    assert (made.shape, made.dtype) == ((10, 3, 16, 16), torch.uint8)
    assert saved(whole)["method"]["critic._extra_state"]["state"]
    assert [row["stage"] for row in whole.history()] == ["players"] * 3 + ["fine-tune"] * 3


@BOTH
def test_images_are_made_from_state_images_and_generator_alone(name: str) -> None:
    method = make(name)
    stage = method.stages()[1]
    method.begin(stage, IMAGES, generator())
    first = method.made.clone()
    torch.rand(3)
    method.begin(stage, IMAGES, generator())
    assert torch.equal(first, method.made)
    method.begin(stage, IMAGES, torch.Generator().manual_seed(6))
    assert not torch.equal(first, method.made)
    method.made = torch.empty(0)
    method.begin(method.stages()[0], IMAGES, generator())
    assert not method.made.numel()  # there is nothing to make before the players have trained


@BOTH
def test_images_of_another_size_are_resized(name: str) -> None:
    images = ImageSet(
        torch.randint(256, (6, 3, 40, 40), dtype=torch.uint8), IMAGES.labels[::4], ("a", "b", "c")
    )
    assert make(name).draw_images(4, images, generator()).shape == (4, 3, 16, 16)


@BOTH
def test_the_model_file_has_no_player_in_it(name: str, tmp_path: Path) -> None:
    again = save_and_load(IMAGES, recipe_of(name, max_steps=4), tmp_path)
    parts = {key.partition(".")[0] for key in again.network.state_dict()}
    assert parts == {"encoder", "projection", "classifier"}
    assert again.decision.detector.name == {"osrci": "osrci", "g-openmax": "openmax"}[name]


@BOTH
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"latent_channels": 0}, "latent_channels must be at least 1"),
        ({"made_images": 0}, "made_images must be at least 1"),
        ({"player_lr": 0.0}, "player_lr must be positive"),
        ({"penalty_weight": -1.0}, "penalty_weight must not be negative"),
        ({"fine_tune_share": 1.0}, "fine_tune_share must lie between"),
    ],
)
def test_wrong_settings_are_refused(name: str, fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        recipe_of(name, **fields)


@BOTH
def test_one_class_is_refused(name: str) -> None:
    images = ImageSet(IMAGES.images[:8], torch.zeros(8, dtype=torch.int64), ("bar",))
    with pytest.raises(UserError, match=f"method {name} needs at least two classes"):
        train(images, recipe_of(name))


@BOTH
def test_the_recipes_are_there(name: str) -> None:
    cpu, paper = load_recipe(f"cpu/{name}-cifar10"), load_recipe(f"paper/{name}-cifar10")
    assert cpu.method == paper.method == name
    assert cpu.views.start_size is None
    assert (paper.objective.made_images, paper.training.epochs, paper.training.betas) == (
        3200,
        33,
        (0.5, 0.999),
    )
    assert players.LatentPlayersSettings().fine_tune_share == pytest.approx(3 / 33)
