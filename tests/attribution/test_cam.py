"""The two maps and their aggregation against loops over pixels."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gradmix.attribution import aggregate, gradcam_map, layercam_map
from gradmix.attribution.cam import MAP_NORMALIZATIONS, SIGNS, turn_towards
from gradmix.errors import UserError
from tests.reference import cam as reference


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 1, 1), (3, 2, 1, 6)])
def test_maps_equal_the_loops(shape: tuple[int, ...]) -> None:
    activation, gradient = random(*shape), random(*shape, seed=1)
    expected = reference.layercam(activation, gradient)
    torch.testing.assert_close(layercam_map(activation, gradient), expected, rtol=1e-12, atol=1e-14)
    expected = reference.gradcam(activation, gradient)
    torch.testing.assert_close(gradcam_map(activation, gradient), expected, rtol=1e-12, atol=1e-14)


def test_layercam_ignores_what_lowers_the_target_and_gradcam_does_not() -> None:
    """One pixel, two channels that are both active; raising the second would lower the target."""
    activation = torch.tensor([3.0, 2.0]).view(1, 2, 1, 1)
    gradient = torch.tensor([1.0, -1.0]).view(1, 2, 1, 1)
    assert layercam_map(activation, gradient).item() == 3
    assert gradcam_map(activation, gradient).item() == 1


def test_the_two_signs_of_a_loss_by_hand() -> None:
    """A linear classifier on two pixels: the left one speaks for the true class, the right one against it."""
    activation = torch.tensor([2.0, 3.0]).view(1, 1, 1, 2).requires_grad_()
    weight = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])  # class 0 sees left − right, class 1 the opposite
    logits = activation.flatten(1) @ weight.T  # (−1, 1): p = softmax, and ∂L/∂A = Wᵀ(p − y)
    torch.nn.functional.cross_entropy(logits, torch.tensor([0])).backward()
    p1 = 1 / (1 + math.exp(-2))
    found = {sign: layercam_map(activation.detach(), turn_towards(activation.grad, sign)) for sign in SIGNS}
    torch.testing.assert_close(found["printed"], torch.tensor([[[0.0, 3 * 2 * p1]]]))
    torch.testing.assert_close(found["evidence"], torch.tensor([[[2 * 2 * p1, 0.0]]]))


@pytest.mark.parametrize("map_of", [layercam_map, gradcam_map])
def test_maps_are_never_negative(map_of: object) -> None:
    assert callable(map_of)
    assert (map_of(random(2, 4, 3, 3), random(2, 4, 3, 3, seed=1)) >= 0).all()


@pytest.mark.parametrize("normalize", MAP_NORMALIZATIONS)
@pytest.mark.parametrize("size", [(8, 12), (7, 5)])
def test_aggregate_equals_the_loop(normalize: str, size: tuple[int, int]) -> None:
    layers = [random(3, 4, 3).abs(), 100 * random(3, 2, 2, seed=1).abs(), random(3, 1, 1, seed=2).abs()]
    expected = reference.aggregate(layers, size, normalize)
    torch.testing.assert_close(aggregate(layers, size, normalize), expected, rtol=1e-12, atol=1e-13)


def test_one_layer_normalised_reaches_one() -> None:
    maps = random(3, 4, 4).abs() * torch.tensor([1.0, 10.0, 100.0]).view(3, 1, 1)
    per_layer = aggregate([maps], (16, 16), "per_layer").amax((1, 2))
    assert per_layer.max() == 1
    assert per_layer.min() < 0.5
    assert torch.equal(aggregate([maps], (16, 16), "per_image").amax((1, 2)), torch.ones(3).double())


@pytest.mark.parametrize("normalize", MAP_NORMALIZATIONS)
def test_maps_of_zeros_stay_zero(normalize: str) -> None:
    """A dead layer must not turn the sum into NaN."""
    alive, dead = torch.ones(2, 3, 3), torch.zeros(2, 3, 3)
    total = aggregate([dead, alive], (6, 6), normalize)
    torch.testing.assert_close(total, torch.ones(2, 6, 6))
    assert torch.equal(aggregate([dead], (6, 6), normalize), torch.zeros(2, 6, 6))


def test_misspelt_normalisation_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'per_layer'"):
        aggregate([torch.ones(1, 2, 2)], (4, 4), "per_layr")
