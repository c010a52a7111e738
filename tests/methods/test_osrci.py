"""OSRCI's walk to the unknown: by hand, per image, and what the released code does instead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.methods import OSRCI
from gradmix.methods.latent_players import unknown_loss
from gradmix.methods.osrci import OSRCISettings, walk_as_released, walk_to_unknown
from tests.methods.test_latent_players import IMAGES, generator, make


def first_coordinate(z: Tensor) -> Tensor:
    """−log P(unknown) of a classifier with one class whose logit is z₁."""
    return unknown_loss(z[:, :1])


def stay(z: Tensor) -> Tensor:
    return z


def test_one_step_by_hand() -> None:
    start = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    paper = walk_to_unknown(start, first_coordinate, stay, 1, 0.1, 0.0)
    released = walk_as_released(start, first_coordinate, stay, 1, 0.1, 0.0)
    assert (paper - start)[0].tolist() == pytest.approx([-0.0731, 0], abs=5e-5)
    assert (released - start)[0].tolist() == pytest.approx([-0.0731 * 1.3133, 0], abs=5e-5)


def test_each_image_walks_by_itself() -> None:
    start = torch.randn(4, 3, generator=generator(), dtype=torch.float64)
    both = walk_to_unknown(start, first_coordinate, stay, 5, 0.1, 1.0)
    alone = torch.cat([walk_to_unknown(row[None], first_coordinate, stay, 5, 0.1, 1.0) for row in start])
    torch.testing.assert_close(both, alone)
    joined = walk_as_released(start, first_coordinate, stay, 5, 0.1, 1.0)
    apart = torch.cat([walk_as_released(row[None], first_coordinate, stay, 5, 0.1, 1.0) for row in start])
    assert not torch.allclose(joined, apart)


def test_the_distance_holds_z_near_its_start() -> None:
    start = torch.tensor([[2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)

    def length(weight: float) -> float:
        end = walk_to_unknown(start, first_coordinate, stay, 50, 0.05, weight)
        return float((end - start).norm())

    assert length(4.0) < length(1.0) < length(0.0)


def test_the_released_distance_holds_nothing() -> None:
    """z may go anywhere with the same mean."""
    start = torch.zeros(2, 2, dtype=torch.float64)
    far = torch.tensor([[50.0, -50.0], [9.0, -9.0]], dtype=torch.float64)
    end = walk_as_released(start, lambda z: (z - far).square().sum(1) / 100, lambda z: z, 1, 0.1, 1e6)
    assert float(end.mean()) == pytest.approx(0, abs=1e-9)
    assert float(end.abs().max()) > 0.1


def test_spheres() -> None:
    z = torch.randn(3, 4, 4, 4, generator=generator())
    paper = make("osrci").project(z)
    torch.testing.assert_close(paper.norm(dim=1), torch.ones(3, 4, 4))
    released = make("osrci", counterfactual="released").project(z)
    torch.testing.assert_close(released.flatten(1).view(3, 16, 4).norm(dim=2), torch.ones(3, 16))
    assert not torch.allclose(paper, released)


def test_counterfactuals_are_nearer_to_the_unknown_than_their_originals() -> None:
    method = make("osrci", counterfactual_steps=10, distance_weight=0.0)
    assert isinstance(method, OSRCI)
    for parameter in method.network.classifier.parameters():  # type: ignore[union-attr]
        torch.nn.init.normal_(parameter, 0, 3.0, generator=generator())
    method.eval()

    def unknown(pixels: Tensor) -> float:
        with torch.no_grad():
            return float(unknown_loss(method.logits(method.network(method.see(pixels)))).mean())

    made = method.make_unknown(IMAGES, generator())
    with torch.no_grad():
        originals = method.decode(method.encode(method.draw_images(10, IMAGES, generator())))
    assert unknown(made) < unknown(originals)
    assert bool(((made >= 0) & (made <= 1)).all())


@pytest.mark.parametrize(("how", "moves"), [("paper", False), ("released", True)])
def test_making_images_moves_statistics_only_as_released(how: str, moves: bool) -> None:
    method = make("osrci", counterfactual=how)
    method.eval()
    before = {name: b.clone() for name, b in method.network.named_buffers() if "running" in name}
    method.make_unknown(IMAGES, generator())
    after = dict(method.network.named_buffers())
    assert all(torch.equal(after[name], b) != moves for name, b in before.items())
    assert all(p.grad is None for p in method.parameters())


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"counterfactual": "papr"}, "did you mean 'paper'"),
        ({"counterfactual_steps": 0}, "counterfactual_steps must be at least 1"),
        ({"counterfactual_speed": 0.0}, "counterfactual_speed must be positive"),
        ({"distance_weight": -1.0}, "distance_weight must not be negative"),
        ({"player_width": 0}, "player_width must be at least 1"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        OSRCISettings(**fields)
