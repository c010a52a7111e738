from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmix.views.geometry import crop_matrices, sample
from tests.reference.views import crop


def matrices(
    n: int = 200,
    scale: tuple[float, float] = (0.2, 1.0),
    ratio: tuple[float, float] = (0.75, 1.3333),
    flip: bool = True,
    degrees: float = 0.0,
    seed: int = 0,
) -> torch.Tensor:
    return crop_matrices(n, scale, ratio, flip, degrees, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("degrees", [0.0, 30.0])
@pytest.mark.parametrize(("height", "width", "size"), [(9, 9, 9), (8, 8, 5), (7, 10, 8)])
def test_sampling_agrees_with_one_image_at_a_time(degrees: float, height: int, width: int, size: int) -> None:
    images = torch.rand(4, 3, height, width, generator=torch.Generator().manual_seed(1))
    chosen = matrices(4, degrees=degrees)
    found = sample(images, chosen, size)
    for i in range(4):
        torch.testing.assert_close(found[i], crop(images[i], chosen[i], size), rtol=1e-4, atol=1e-5)


def test_the_whole_image_is_given_back() -> None:
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    whole = matrices(2, scale=(1, 1), ratio=(1, 1), flip=False)
    torch.testing.assert_close(sample(images, whole, 8), images, rtol=1e-5, atol=1e-6)


@given(
    low=st.floats(0.05, 1),
    high=st.floats(0.05, 1),
    ratio=st.floats(0.2, 1),
    flip=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_crops_stay_inside(low: float, high: float, ratio: float, flip: bool, seed: int) -> None:
    low, high = min(low, high), max(low, high)
    m = matrices(20, (low, high), (ratio, 1 / ratio), flip, seed=seed)
    reach_x, reach_y = m[:, 0, 0].abs() + m[:, 0, 2].abs(), m[:, 1, 1].abs() + m[:, 1, 2].abs()
    assert float(reach_x.max()) <= 1 + 1e-6
    assert float(reach_y.max()) <= 1 + 1e-6


def test_area_and_aspect_are_those_asked_for() -> None:
    m = matrices(5000, scale=(0.2, 0.5))
    width, height = m[:, 0, 0].abs(), m[:, 1, 1]
    area, aspect = width * height, width / height
    assert 0.2 - 1e-6 < float(area.min()) < 0.205
    assert 0.495 < float(area.max()) < 0.5 + 1e-6
    assert 0.75 - 1e-5 < float(aspect.min()) < 0.76
    assert 1.32 < float(aspect.max()) < 1.3333 + 1e-5
    assert float(aspect.log().mean()) == pytest.approx(0, abs=0.02)  # wide as often as tall


def test_flips_only_if_allowed_and_then_half_of_the_time() -> None:
    assert bool((matrices(1000, flip=False)[:, 0, 0] > 0).all())
    share = (matrices(4000, flip=True)[:, 0, 0] < 0).float().mean()
    assert float(share) == pytest.approx(0.5, abs=0.04)
    images = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    seen = sample(images, matrices(64, (1, 1), (1, 1)), 8)
    kept = (seen - images).abs().amax((1, 2, 3)) < 1e-5
    mirrored = (seen - images.flip(3)).abs().amax((1, 2, 3)) < 1e-5
    assert bool((kept ^ mirrored).all())


def test_rotation_is_within_bounds_and_around_the_centre() -> None:
    m = matrices(2000, (1, 1), (1, 1), flip=False, degrees=30.0)
    angle = torch.atan2(m[:, 1, 0], m[:, 0, 0]) * 180 / math.pi
    assert 28 < float(angle.max()) <= 30 + 1e-4
    assert -30 - 1e-4 <= float(angle.min()) < -28
    torch.testing.assert_close(torch.linalg.det(m[:, :, :2]), torch.ones(2000))
    assert float(m[:, :, 2].abs().max()) < 1e-6


def test_settings_do_not_change_what_is_drawn() -> None:
    """One call takes the same random numbers whatever the settings: nothing later depends on them."""
    plain, other = torch.Generator().manual_seed(4), torch.Generator().manual_seed(4)
    crop_matrices(5, (0.2, 1), (0.75, 1.33), True, 10, plain)
    crop_matrices(5, (1, 1), (1, 1), False, 0, other)
    assert torch.equal(torch.rand(3, generator=plain), torch.rand(3, generator=other))
