"""G-OpenMax as its paper has it: codes, players, which images are kept, the K + 1 outputs, runs and files."""

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
from gradmix.methods import GOpenMaxGAN, Progress, Views
from gradmix.methods.g_openmax_gan import TOGETHER, GOpenMaxGANSettings, mix_codes
from gradmix.models import DummiesHead
from gradmix.training import load_recipe, train
from gradmix.training.session import build_method
from gradmix.views import Normalizer
from tests.methods.saved_model import save_and_load
from tests.reference.g_openmax_gan import unknown_stage_loss
from tests.training.interrupted import assert_equal_bits, saved, train_whole_and_stopped
from tests.training.tiny import tiny_images, tiny_recipe

IMAGES = tiny_images(8)  # 24 images: 3 steps per epoch, 3 in each stage
SMALL: dict[str, Any] = {
    **{"method": "g-openmax-gan", "gan_width": 16, "noise_dim": 4, "gan_lr": 0.01, "made_images": 10},
    **{"unknown_share": 0.5, "unknown_lr": 0.001, "log_every": 1},
}
NORMALIZER = Normalizer((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
PLAYERS = ("generator.", "discriminator.")


def make(**fields: Any) -> GOpenMaxGAN:
    method = build_method(tiny_recipe(**{**SMALL, **fields}), IMAGES.class_names, NORMALIZER)
    assert isinstance(method, GOpenMaxGAN)
    return method


def views(stage: str = "players") -> Views:
    x = NORMALIZER(IMAGES.images[::2]).contiguous(memory_format=torch.channels_last)
    return Views(x, x, IMAGES.labels[::2], Progress(stage=stage))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def outputs_of(method: GOpenMaxGAN, x: Tensor) -> Tensor:
    head = method.network.classifier
    assert isinstance(head, DummiesHead)
    z = method.network(x)
    return torch.cat([head(z), head.dummies(z)], dim=1)


def test_codes_are_mixtures_of_the_classes_drawn() -> None:
    codes = mix_codes(4000, 5, 2, generator())
    assert bool((codes >= 0).all())
    assert bool(((codes > 0).sum(1) == 2).all())
    torch.testing.assert_close(codes.sum(1), torch.ones(4000))
    # Every class in 2 of 5 codes; the larger share of a pair is uniform on [½, 1].
    assert float((codes > 0).double().mean()) == pytest.approx(0.4)
    assert (codes > 0).double().mean(0).tolist() == pytest.approx([0.4] * 5, abs=0.03)
    assert float(codes.amax(1).mean()) == pytest.approx(0.75, abs=0.01)
    assert bool(((mix_codes(9, 3, 7, generator()) > 0).sum(1) == 3).all())  # no more than there are


def test_a_step_of_the_players_is_the_one_written_out() -> None:
    """Two Adams, the discriminator's first; both players are told the codes."""
    method, plain = make().double(), make().double()
    v = views()
    x = v.v1.double()
    d_found, g_found = method.train_players(Views(x, x, v.labels, v.progress), generator())

    source = generator()
    codes = F.one_hot(torch.randint(3, (12,), generator=source), 3).double()
    noise = torch.randn(12, 4, generator=source).double()
    g, d = plain.generator.module, plain.discriminator.module
    adams = {m: torch.optim.Adam(m.parameters(), 0.01, (0.5, 0.999)) for m in (g, d)}

    def judge(images: Tensor, told: Tensor, real: bool) -> Tensor:
        p = torch.sigmoid(d(images, told))
        return -(p if real else 1 - p).log().mean()

    made = NORMALIZER(g(torch.cat([noise, codes], dim=1)))
    labels = F.one_hot(v.labels, 3).double()
    for module, loss_of, found in (
        (d, lambda: judge(x, labels, True) + judge(made.detach(), codes, False), d_found),
        (g, lambda: judge(made, codes, True), g_found),
    ):
        plain.zero_grad()
        loss = loss_of()
        loss.backward(retain_graph=True)
        adams[module].step()
        assert float(loss.detach()) == pytest.approx(float(found), rel=1e-6)
    theirs = plain.state_dict()
    for key, value in method.state_dict().items():
        if isinstance(value, Tensor) and "num_batches" not in key:
            torch.testing.assert_close(value, theirs[key], rtol=1e-6, atol=1e-7, msg=key)


def test_the_discriminator_sees_the_code() -> None:
    method = make().eval()
    x = views().v1
    one, two = (torch.eye(3)[[k]].expand(12, 3) for k in (0, 1))
    assert not torch.allclose(method.discriminator(x, one), method.discriminator(x, two))
    assert not torch.allclose(method.draw(torch.zeros(12, 4), one), method.draw(torch.zeros(12, 4), two))


def test_a_step_leaves_gradients_in_the_known_part_only() -> None:
    method = make()
    before = deepcopy(method.state_dict())
    found = method.step(views(), generator())
    for key, parameter in method.named_parameters():
        player = key.startswith(PLAYERS)
        assert (parameter.grad is None) == (player or ".dummies." in key), key
        assert torch.equal(parameter, before[key]) != player, key
    plain, v = make(), views()
    wanted = F.cross_entropy(plain.logits(plain.network(v.v1)), v.labels)
    assert float(found["loss"]) == pytest.approx(wanted.item(), rel=1e-6)


def test_the_second_stage_is_the_slow_one() -> None:
    method = make()
    method.made = IMAGES.images[:5]
    method.eval()  # so that real and made images, apart below, have the same statistics
    before = deepcopy(method.state_dict())
    v = views("unknown")
    found = method.step(v, generator())
    rows = torch.randint(5, (12,), generator=generator())
    with torch.no_grad():
        real, made = (outputs_of(method, x) for x in (v.v1, NORMALIZER(IMAGES.images[:5][rows])))
    wanted = unknown_stage_loss(real.double(), v.labels, made.double())
    assert float(found["loss"]) == pytest.approx(wanted, rel=1e-5)
    assert all(p.grad is None for key, p in method.named_parameters() if key.startswith(PLAYERS))
    assert method.network.classifier.dummies.weight.grad is not None  # type: ignore[union-attr]
    assert_equal_bits(before, method.state_dict())


def test_the_loss_by_hand() -> None:
    """Equal outputs: log 4 for each of the four; a made image that is surely unknown costs nothing."""
    even, labels = torch.zeros(3, 4, dtype=torch.float64), torch.tensor([0, 1, 2])
    assert unknown_stage_loss(even, labels, even) == pytest.approx(1.386294, abs=1e-6)  # log 4
    sure = torch.tensor([[0.0, 0.0, 0.0, 60.0]], dtype=torch.float64)
    assert unknown_stage_loss(even, labels, sure) == pytest.approx(0.75 * 1.386294, abs=1e-6)


def answering(method: GOpenMaxGAN, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Let the classifier say ``answer`` of the codes that it is shown; images are their codes."""
    monkeypatch.setattr(method, "draw", lambda noise, codes: codes[:, :, None, None])
    monkeypatch.setattr(method, "see", lambda pixels: pixels)
    monkeypatch.setattr(method, "network", torch.nn.Flatten())
    monkeypatch.setattr(method, "logits", answer)
    monkeypatch.setattr(torch.nn.Flatten, "parameters", lambda self: iter([torch.zeros(1)]))


def test_images_whose_answer_is_not_the_largest_class_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    method = make(made_images=20)
    answering(method, monkeypatch, lambda codes: 5 * codes.roll(1, dims=1))
    images, sure, kept = method.mix(generator())
    codes = images.flatten(1)
    wanted = (5 * codes.roll(1, dims=1)).softmax(1)
    assert torch.equal(kept, wanted.argmax(1) != codes.argmax(1))
    torch.testing.assert_close(sure, wanted.gather(1, codes.argmax(1)[:, None])[:, 0])
    assert bool(kept.any())
    assert torch.equal(method.make_unknown(generator()), images[kept][:20])


def test_a_perfect_classifier_keeps_none_and_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then those are taken of whose largest class it is least sure."""
    method = make(made_images=4, mix_tries=32)
    answering(method, monkeypatch, lambda codes: 5 * codes)
    assert not bool(method.mix(generator())[2].any())
    made = method.make_unknown(generator())
    assert made.shape[0] == 4
    source = generator()
    every = torch.cat([method.mix(source)[1] for _ in range(4 * 32 // TOGETHER)])
    largest = (5 * made.flatten(1)).softmax(1).amax(1)
    torch.testing.assert_close(largest, every.sort().values[:4])


def test_two_classes_end(tmp_path: Path) -> None:
    two = IMAGES.select(torch.arange(16))
    two = ImageSet(two.images, two.labels, ("bar", "disc"))
    assert train(two, tiny_recipe(**SMALL)).steps > 0


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_stopped_and_resumed(stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = train_whole_and_stopped(IMAGES, tiny_recipe(**SMALL), stop, tmp_path, monkeypatch)
    made = saved(whole)["method"]["made"]
    assert (made.shape, made.dtype) == ((10, 3, 16, 16), torch.uint8)
    assert saved(whole)["method"]["discriminator._extra_state"]["state"]
    assert [row["stage"] for row in whole.history()] == ["players"] * 3 + ["unknown"] * 3


def test_images_are_made_from_state_and_generator_alone() -> None:
    method = make()
    method.begin(method.stages()[0], IMAGES, generator())
    assert not method.made.numel()  # there is nothing to make before the players have trained
    method.begin(method.stages()[1], IMAGES, generator())
    first = method.made.clone()
    torch.rand(3)
    method.begin(method.stages()[1], IMAGES, generator())
    assert torch.equal(first, method.made)


def test_the_model_file_has_no_player_in_it(tmp_path: Path) -> None:
    again = save_and_load(IMAGES, tiny_recipe(**SMALL, max_steps=4), tmp_path)
    parts = {key.partition(".")[0] for key in again.network.state_dict()}
    assert parts == {"encoder", "projection", "classifier"}
    assert again.decision.detector.name == "g-openmax"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"noise_dim": 0}, "noise_dim must be at least 1"),
        ({"mixed_classes": 1}, "mixed_classes must be at least 2, not 1"),
        ({"made_images": 0}, "made_images must be at least 1"),
        ({"mix_tries": 0}, "mix_tries must be at least 1"),
        ({"gan_width": 12}, "gan_width must be a power of 2 from 8 on, not 12"),
        ({"gan_lr": 0.0}, "gan_lr must be positive"),
        ({"unknown_share": 1.0}, "unknown_share must lie between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        GOpenMaxGANSettings(**fields)


def test_one_class_is_refused() -> None:
    images = ImageSet(IMAGES.images[:8], torch.zeros(8, dtype=torch.int64), ("bar",))
    with pytest.raises(UserError, match="method g-openmax-gan needs at least two classes"):
        train(images, tiny_recipe(**SMALL))


def test_the_recipes_are_there() -> None:
    for name in ("cpu", "paper"):
        recipe = load_recipe(f"{name}/g-openmax-gan-cifar10")
        assert (recipe.method, recipe.views.start_size) == ("g-openmax-gan", None)
