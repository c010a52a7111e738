"""Each formula against a slow version of one image, or against the moments it must have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from torch import Tensor

from gradmix.data.corruptions.blur import blur_along_line, defocus_blur, shuffle_sources, zoom_blur
from gradmix.data.corruptions.digital import (
    affine_positions,
    contrast,
    elastic_transform,
    jpeg_compression,
    pixelate,
    sample,
)
from gradmix.data.corruptions.draws import Draws
from gradmix.data.corruptions.noise import gaussian_noise, impulse_noise, shot_noise
from gradmix.data.corruptions.plasma import plasma
from gradmix.data.corruptions.separable import gaussian_blur
from gradmix.data.corruptions.weather import brightness, fog, snow
from tests.reference import corruptions as slow

Make = Callable[..., Tensor]


def draws(n: int = 2) -> Draws:
    return Draws(0, "test", 1, 0, n)


@pytest.fixture
def images(make_images: Make) -> Tensor:
    """(2, 3, 21, 21) float64, with one black and one white pixel."""
    pixels: Tensor = make_images(2, 3, 21, 21).double() / 255
    pixels[0, :, 3, 4], pixels[0, :, 5, 6] = 0, 1
    return pixels


def as_arrays(images: Tensor) -> npt.NDArray[np.float64]:
    return images.permute(0, 2, 3, 1).numpy()


def assert_same(fast: Tensor, one_by_one: list[npt.NDArray[np.float64]]) -> None:
    np.testing.assert_allclose(as_arrays(fast), np.stack(one_by_one), atol=1e-6)


def test_draws_are_uniform_and_normal() -> None:
    numbers = Draws(1, "fog", 2, 0, 50)
    uniform, normal = numbers.uniform("u", 2001), numbers.normal("n", 2001)
    assert float(uniform.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(uniform.var()) == pytest.approx(1 / 12, abs=0.005)
    assert float(normal.mean()) == pytest.approx(0, abs=0.02)
    assert float(normal.var()) == pytest.approx(1, abs=0.03)
    assert float(normal.pow(4).mean()) == pytest.approx(3, abs=0.2)
    assert not torch.equal(uniform, numbers.uniform("v", 2001))
    assert set(numbers.below(torch.tensor(3), "which").tolist()) == {0, 1, 2}


def test_gaussian_noise_has_its_moments() -> None:
    grey = torch.full((4, 3, 64, 64), 0.5, dtype=torch.float64)
    added = gaussian_noise(grey, 0.12, draws(4)) - grey
    assert float(added.mean()) == pytest.approx(0, abs=0.003)
    assert float(added.std()) == pytest.approx(0.12, rel=0.02)


@pytest.mark.parametrize("photons", [5, 50, 500])
@pytest.mark.parametrize("level", [0, 1, 51, 102])
def test_shot_noise_has_a_poisson_distribution(photons: int, level: int) -> None:
    """Mean x, variance x / p, and a share e^(−p x) without a single photon."""
    x = level / 255
    counts = shot_noise(torch.full((4, 1, 64, 64), x, dtype=torch.float64), photons, draws(4)) * photons
    assert torch.allclose(counts, counts.round())
    counts = counts.round()
    n = counts.numel()
    assert float(counts.mean()) == pytest.approx(photons * x, abs=5 * (photons * x / n) ** 0.5 + 1e-12)
    if photons * x >= 1 and x < 0.3:  # above that, clipping at white takes part of the variance
        assert float(counts.var()) == pytest.approx(photons * x, rel=0.1)
    assert float((counts == 0).double().mean()) == pytest.approx(np.exp(-photons * x), abs=0.02)


def test_white_is_clipped_by_shot_noise() -> None:
    assert float(shot_noise(torch.ones(2, 1, 32, 32, dtype=torch.float64), 20, draws()).max()) == 1


def test_impulse_noise_replaces_its_share(images: Tensor) -> None:
    grey = torch.full((2, 3, 100, 100), 0.5, dtype=torch.float64)
    out = impulse_noise(grey, 0.2, draws())
    assert float((out == 0).double().mean()) == pytest.approx(0.1, abs=0.01)
    assert float((out == 1).double().mean()) == pytest.approx(0.1, abs=0.01)
    assert float((out == 0.5).double().mean()) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("radius", "sigma"), [(0.3, 0.4), (1, 0.2), (1.5, 0.1), (3, 0.1), (10, 0.5)])
def test_defocus_is_convolution_with_a_disk(images: Tensor, radius: float, sigma: float) -> None:
    fast = defocus_blur(images, (radius, sigma), draws())
    assert_same(fast, [slow.defocus(image, radius, sigma) for image in as_arrays(images)])


def test_contrast(images: Tensor) -> None:
    assert_same(contrast(images, 0.3, draws()), [slow.contrast(image, 0.3) for image in as_arrays(images)])


def test_brightness_is_the_value_of_hsv(images: Tensor) -> None:
    fast = brightness(images, 0.4, draws())
    assert_same(fast, [slow.brightness(image, 0.4) for image in as_arrays(images)])


@pytest.mark.parametrize("scale", [0.95, 0.75, 0.5, 0.25])
def test_pixelate_is_pillows_box_there_and_back(images: Tensor, scale: float) -> None:
    small = int(21 * scale)
    fast = (pixelate(images, scale, draws()) * 255).round()
    for ours, image in zip(as_arrays(fast), as_arrays(images), strict=True):
        picture = Image.fromarray((image * 255).round().astype(np.uint8))
        box = Image.Resampling.BOX
        theirs = np.asarray(picture.resize((small, small), box).resize((21, 21), box), dtype=float)
        assert np.abs(ours - theirs).max() <= 1  # Pillow rounds after each pass


@pytest.mark.parametrize("degrees", [0.0, 30.0, -45.0, -100.0])
def test_motion_is_a_line_kernel(images: Tensor, degrees: float) -> None:
    angles = torch.tensor([degrees, degrees / 2])
    fast = blur_along_line(images, 6, 2.0, angles)
    assert_same(
        fast, [slow.motion(i, 6, 2.0, float(a)) for i, a in zip(as_arrays(images), angles, strict=True)]
    )


def test_zoom_is_the_mean_of_zoomed_copies(images: Tensor) -> None:
    factors = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]
    fast = zoom_blur(images, (1.055, 0.01), draws())
    assert_same(fast, [slow.zoom_blur(image, factors) for image in as_arrays(images)])


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.5])
def test_gaussian_blur_is_scipys(images: Tensor, sigma: float) -> None:
    from scipy.ndimage import gaussian_filter

    fast = gaussian_blur(images, sigma)
    assert_same(fast, [gaussian_filter(i, (sigma, sigma, 0), mode="nearest") for i in as_arrays(images)])


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_the_shuffle_of_glass_is_the_scan(reach: int) -> None:
    generator = torch.Generator().manual_seed(reach)
    shift = torch.randint(-reach, reach, (3, 2, 12 * 15), generator=generator)
    fast = shuffle_sources(shift[:, 0], shift[:, 1], reach, 12, 15)
    for ours, (down, right) in zip(fast, shift.view(3, 2, 12, 15).numpy(), strict=True):
        assert np.array_equal(ours.view(12, 15).numpy(), slow.glass_sources(down, right, reach))


def test_elastic_is_an_affine_map_and_ripples(images: Tensor) -> None:
    corners = 10 + 7 * np.array([[1, 1], [1, -1], [-1, -1]], dtype=float)
    ours = elastic_transform(images, (0.1, 0.06, 0.07), draws())
    moved = draws().between(-0.07 * 21, 0.07 * 21, "corners", 3, 2).numpy()
    noise = draws().between(-1, 1, "ripples", 2, 21, 21).numpy()
    by_hand = [
        slow.rippled(slow.affine(image, corners, corners + moved[i]), noise[i], 0.1 * 21, 0.06 * 21)
        for i, image in enumerate(as_arrays(images))
    ]
    assert_same(ours, by_hand)


def test_points_that_stay_leave_the_image_alone(images: Tensor) -> None:
    places = affine_positions(torch.zeros(2, 3, 2, dtype=torch.float64), 21, 21)
    assert torch.allclose(sample(images, places, mirror_at_centers=True), images)


@pytest.mark.parametrize("decay", [3.0, 1.75])
def test_plasma_is_midpoint_displacement(decay: float) -> None:
    chance = draws().between(-1, 1, "heights", 16, 16).numpy()
    ours = plasma(draws(), 16, decay).numpy()
    for field, random in zip(ours, chance, strict=True):
        np.testing.assert_allclose(field, slow.plasma(random, decay), atol=1e-9)


def test_fog_keeps_the_range(images: Tensor) -> None:
    foggy = fog(images, (1.5, 2), draws())
    assert bool((foggy <= images.amax((1, 2, 3), keepdim=True) + 1e-12).all())
    assert float(foggy.std()) < float(images.std())


def test_snow_only_adds_light(images: Tensor) -> None:
    assert bool((snow(images, (0.1, 0.2, 1, 0.5, 10, 4, 0.8), draws()) >= images - 1e-12).all())


def test_jpeg_is_pillows(images: Tensor) -> None:
    import io

    ours = (jpeg_compression(images, 40, draws()) * 255).round()
    for fast, image in zip(as_arrays(ours), as_arrays(images), strict=True):
        file = io.BytesIO()
        Image.fromarray((image * 255).round().astype(np.uint8)).save(file, "JPEG", quality=40)
        assert np.array_equal(fast, np.asarray(Image.open(file)))
