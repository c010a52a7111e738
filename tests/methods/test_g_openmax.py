"""G-OpenMax's images between others: which are kept, and that it ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.methods.g_openmax import GOpenMax, GOpenMaxSettings, LeastConfident
from gradmix.methods.latent_players import TOGETHER
from gradmix.training import train
from tests.methods.test_latent_players import IMAGES, generator, make, recipe_of


def collected(confidence: list[list[float]], count: int, limit: float) -> tuple[list[int], int]:
    """The numbers of the images that are taken, and how many of them were below the limit."""
    pool, number = LeastConfident(count, limit), 0
    for batch in confidence:
        images = torch.arange(number, number + len(batch)).float()[:, None, None, None]
        pool.add(images, torch.tensor(batch))
        number += len(batch)
    return [int(i) for i in pool.images.flatten()], pool.kept


def test_the_first_below_the_limit_are_taken() -> None:
    assert collected([[0.4, 0.9, 0.1], [0.45, 0.2]], 2, 0.5) == ([0, 2], 4)


def test_then_the_least_confident() -> None:
    assert collected([[0.9, 0.4, 0.8], [0.95, 0.6]], 3, 0.5) == ([1, 4, 2], 1)


def test_nothing_below_the_limit() -> None:
    assert collected([[0.9, 0.7], [0.6, 0.8]], 3, 0.5) == ([2, 1, 3], 0)


def count_mixes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []
    take = GOpenMax.mix

    def counting(self: GOpenMax, *given: Any) -> tuple[Tensor, Tensor]:
        counted.append(1)
        return take(self, *given)

    monkeypatch.setattr(GOpenMax, "mix", counting)
    return counted


def two_classes() -> ImageSet:
    two = IMAGES.select(torch.arange(16))
    return ImageSet(two.images, two.labels, ("bar", "disc"))


def test_two_classes_never_fall_below_one_half_and_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of("g-openmax", mix_tries=20)
    counted = count_mixes(monkeypatch)
    monkeypatch.setattr(GOpenMax, "check_images", lambda self, images: None)
    trained = train(two_classes(), recipe)
    assert trained.steps > 0
    assert len(counted) == -(-10 * 20 // TOGETHER)  # all tries


def test_a_limit_that_nothing_can_lie_below_is_refused() -> None:
    with pytest.raises(UserError, match=r"of 2 classes one always has 0.5 .* --confidence-limit 0.75"):
        train(two_classes(), recipe_of("g-openmax"))
    assert train(two_classes(), recipe_of("g-openmax", confidence_limit=0.75)).steps > 0


def test_it_stops_as_soon_as_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    method = make("g-openmax", confidence_limit=1.0, mix_tries=1000)
    counted = count_mixes(monkeypatch)
    method.eval()
    assert method.make_unknown(IMAGES, generator()).shape == (10, 3, 16, 16)
    assert len(counted) == 1


@pytest.mark.parametrize("theta", [0.0, 1.0])
def test_with_a_perfect_autoencoder_an_end_is_an_image_and_not_kept(
    theta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an image that the classifier is sure of, that is."""
    method = make("g-openmax")
    monkeypatch.setattr(method, "encode", lambda x: x)
    monkeypatch.setattr(method, "decode", lambda z: z)
    monkeypatch.setattr(method, "see", lambda x: x)
    monkeypatch.setattr(method, "network", torch.nn.Identity())
    monkeypatch.setattr(method, "logits", lambda x: 20 * (x.mean((2, 3)) - 0.5))
    monkeypatch.setattr(torch, "rand", lambda *shape, generator: torch.full(shape, theta))
    ends = torch.zeros(2 * TOGETHER, 3, 2, 2)
    ends[torch.arange(2 * TOGETHER), torch.arange(2 * TOGETHER) % 3] = 1.0  # a channel per class
    monkeypatch.setattr(method, "draw_images", lambda *given: ends)
    assert isinstance(method, GOpenMax)
    mixed, confidence = method.mix(IMAGES, generator())
    assert torch.equal(mixed, ends[:TOGETHER] if theta else ends[TOGETHER:])
    assert not bool((confidence < 0.5).any())
    monkeypatch.setattr(torch, "rand", lambda *shape, generator: torch.full(shape, 0.5))
    _, between = method.mix(IMAGES, generator())
    assert bool((between < confidence).any())


def test_the_middle_of_two_latents_is_decoded() -> None:
    method = make("g-openmax")
    assert isinstance(method, GOpenMax)
    method.eval()
    with torch.no_grad():
        mixed, confidence = method.mix(IMAGES, generator())
        source = generator()
        theta = torch.rand(TOGETHER, 1, 1, 1, generator=source)
        ends = method.encode(method.draw_images(2 * TOGETHER, IMAGES, source))
        wanted = method.decode(theta * ends[:TOGETHER] + (1 - theta) * ends[TOGETHER:])
        sure = method.logits(method.network(method.see(wanted))).softmax(1).amax(1)
    torch.testing.assert_close(mixed, wanted)
    torch.testing.assert_close(confidence, sure)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"confidence_limit": 0.0}, "confidence_limit must lie in"),
        ({"mix_tries": 0}, "mix_tries must be at least 1"),
        ({"player_width": 0}, "player_width must be at least 1"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        GOpenMaxSettings(**fields)
