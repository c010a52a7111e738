"""S_M(τ) against a count of pixels."""

from __future__ import annotations

import pytest
import torch

from gradmix.attribution import activated_area, area_thresholds
from tests.reference import cam as reference


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 7, 5)])
def test_equals_a_pixel_count(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    maps = 10 ** (-6 * torch.rand(*shape, generator=generator)) * (
        torch.rand(shape, generator=generator) > 0.3
    )
    thresholds = torch.cat([area_thresholds(), maps.flatten()[:3]])  # unsorted, and some equal to a pixel
    expected = torch.tensor([reference.area(maps, float(t)) for t in thresholds])
    torch.testing.assert_close(activated_area(maps, thresholds), expected, rtol=1e-7, atol=0)


def test_a_pixel_at_the_threshold_is_not_activated() -> None:
    maps = torch.full((2, 3, 3), 0.5)
    assert activated_area(maps, torch.tensor([0.4, 0.5, 0.6])).tolist() == [1, 0, 0]


def test_one_pixel_among_many_keeps_its_share() -> None:
    """1 − (almost 1) in single precision would be off by a twentieth here."""
    maps = torch.zeros(1, 1000, 1000)
    maps[0, 3, 4] = 1
    assert activated_area(maps, torch.tensor([0.5])).item() == pytest.approx(1e-6, rel=1e-6)


def test_thresholds_are_those_of_the_figure() -> None:
    found = area_thresholds(5).double()
    expected = torch.tensor([1e-5, 10**-4.5, 1e-4, 10**-3.5, 1e-3], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def test_area_shrinks_as_the_threshold_grows() -> None:
    maps = torch.rand(3, 9, 9, generator=torch.Generator().manual_seed(0)) * 1e-3
    assert (activated_area(maps, area_thresholds()).diff() <= 0).all()
