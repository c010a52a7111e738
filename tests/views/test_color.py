from __future__ import annotations

import pytest
import torch

from gradmix.views.color import color_matrix, factors, jitter
from tests.reference.views import colour_jitter, hue_of


@pytest.mark.parametrize("channels", [1, 3])
def test_one_affine_map_equals_one_operation_after_the_other(channels: int) -> None:
    generator = torch.Generator().manual_seed(0)
    n = 6
    images = torch.rand(n, channels, 5, 7, generator=generator)
    brightness, contrast = factors(n, 0.8, generator), factors(n, 0.8, generator)
    saturation, hue = factors(n, 0.8, generator), torch.rand(n, generator=generator) - 0.5
    saturation[0], hue[1], contrast[2], brightness[3] = 0.0, 0.0, 0.0, 0.0
    matrix = color_matrix(saturation, hue) if channels == 3 else None
    found = jitter(images, brightness, contrast, matrix)
    for i in range(n):
        wanted = colour_jitter(
            images[i], float(brightness[i]), float(contrast[i]), float(saturation[i]), float(hue[i])
        )
        torch.testing.assert_close(found[i], wanted, rtol=1e-4, atol=1e-5)


def test_ones_and_zeros_change_nothing() -> None:
    images = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    one, zero = torch.ones(3), torch.zeros(3)
    torch.testing.assert_close(
        jitter(images, one, one, color_matrix(one, zero)), images, rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(jitter(images[:, :1], one, one), images[:, :1], rtol=1e-6, atol=1e-7)


def test_no_saturation_is_grey() -> None:
    images = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros(3)
    hue = torch.tensor([0.0, 0.1, -0.5])
    found = jitter(
        images, torch.tensor([0.7, 1.0, 1.3]), torch.tensor([1.3, 1.0, 0.6]), color_matrix(zero, hue)
    )
    torch.testing.assert_close(found[:, 0], found[:, 1])
    torch.testing.assert_close(found[:, 0], found[:, 2])


def test_grey_images_stay_grey() -> None:
    images = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)).expand(2, 3, 4, 4)
    found = jitter(images, torch.ones(2), torch.ones(2), color_matrix(torch.ones(2) * 1.4, torch.ones(2) / 3))
    torch.testing.assert_close(found, images.contiguous(), rtol=1e-4, atol=1e-5)


def test_half_a_turn_is_the_opposite_colour() -> None:
    pale_red = torch.tensor([0.6, 0.45, 0.45]).view(1, 3, 1, 1)
    turned = jitter(pale_red, torch.ones(1), torch.ones(1), color_matrix(torch.ones(1), torch.tensor([0.5])))
    before, after = hue_of((0.6, 0.45, 0.45)), hue_of(tuple(turned.flatten().tolist()))
    assert (after - before) % 1 == pytest.approx(0.5, abs=0.03)
    again = jitter(turned, torch.ones(1), torch.ones(1), color_matrix(torch.ones(1), torch.tensor([0.5])))
    torch.testing.assert_close(again, pale_red, rtol=1e-4, atol=1e-5)


def test_factors_lie_around_1_and_never_below_0() -> None:
    drawn = factors(5000, 0.4, torch.Generator().manual_seed(0))
    assert 0.6 <= float(drawn.min()) < 0.61
    assert 1.39 < float(drawn.max()) <= 1.4
    assert float(factors(5000, 3.0, torch.Generator().manual_seed(0)).min()) >= 0
    assert torch.equal(factors(4, 0.0, torch.Generator()), torch.ones(4))
