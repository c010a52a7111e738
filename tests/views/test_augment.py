from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.views import Augment, Normalizer, ViewSettings
from gradmix.views.geometry import crop_matrices
from tests.reference.views import colour_jitter, crop

AS_IT_IS = ViewSettings(
    image_size=8,
    crop_scale=(1, 1),
    crop_ratio=(1, 1),
    flip=False,
    brightness=0,
    contrast=0,
    saturation=0,
    hue=0,
    jitter_chance=0,
    grey_chance=0,
)
HALF = {1: Normalizer((0.5,), (0.5,)), 3: Normalizer((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))}


def random_bytes(n: int = 6, channels: int = 3, side: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, channels, side, side), dtype=torch.uint8, generator=generator)


def view(settings: ViewSettings, images: Tensor, seed: int = 0) -> Tensor:
    return Augment(settings, HALF[images.shape[1]])(images, torch.Generator().manual_seed(seed))


def pixels(seen: Tensor) -> Tensor:
    """Back to [0, 1]."""
    normalizer = HALF[seen.shape[1]]
    mean, std = torch.tensor(normalizer.mean), torch.tensor(normalizer.std)
    return seen * std.view(-1, 1, 1) + mean.view(-1, 1, 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("jitter_chance", [0.0, 1.0])  # of strength 0
def test_identity_settings_only_normalise(channels: int, jitter_chance: float) -> None:
    images = random_bytes(channels=channels)
    settings = replace(AS_IT_IS, channels=channels, jitter_chance=jitter_chance)
    torch.testing.assert_close(view(settings, images), HALF[channels](images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_equals_image_after_image_and_step_after_step(channels: int) -> None:
    """The random numbers are drawn again in the documented order, then each image goes its own way."""
    images = random_bytes(5, channels)
    s = ViewSettings(image_size=8, channels=channels, rotate=20, hue=0.3, jitter_chance=0.6, grey_chance=0.4)
    seen = pixels(view(s, images, seed=17))

    generator = torch.Generator().manual_seed(17)
    matrices = crop_matrices(5, s.crop_scale, s.crop_ratio, s.flip, s.rotate, generator)

    def draw() -> list[float]:
        return torch.rand(5, generator=generator).tolist()

    jittered = [u < 0.6 for u in draw()]
    brightness, contrast = draw(), draw()
    saturation, grey, hue = (draw(), draw(), draw()) if channels == 3 else ([0.5] * 5, [1.0] * 5, [0.5] * 5)
    assert True in jittered
    assert False in jittered
    for i in range(5):
        one = crop(images[i] / 255, matrices[i], 8)
        on = float(jittered[i])
        wanted = colour_jitter(
            one,
            brightness=1 + on * 0.4 * (2 * brightness[i] - 1),
            contrast=1 + on * 0.4 * (2 * contrast[i] - 1),
            saturation=0.0 if grey[i] < 0.4 else 1 + on * 0.4 * (2 * saturation[i] - 1),
            hue=on * 0.3 * (2 * hue[i] - 1),
        )
        torch.testing.assert_close(seen[i], wanted, rtol=1e-4, atol=2e-5)


def test_same_generator_state_same_bytes() -> None:
    images, settings = random_bytes(), ViewSettings(image_size=8)
    assert torch.equal(view(settings, images, 3), view(settings, images, 3))
    assert not torch.equal(view(settings, images, 3), view(settings, images, 4))
    generator = torch.Generator().manual_seed(3)
    augment = Augment(settings, HALF[3])
    assert not torch.equal(augment(images, generator), augment(images, generator))


def test_the_images_are_left_as_they_were() -> None:
    images = random_bytes()
    before = images.clone()
    view(ViewSettings(image_size=8), images)
    assert torch.equal(images, before)


def test_flips_only_where_allowed() -> None:
    images = random_bytes(40)
    kept = view(AS_IT_IS, images)
    torch.testing.assert_close(kept, HALF[3](images), rtol=1e-5, atol=1e-5)
    mirrored = (view(replace(AS_IT_IS, flip=True), images) - HALF[3](images)).abs().amax((1, 2, 3)) > 1e-3
    assert 8 <= int(mirrored.sum()) <= 32


def test_grey_images_have_equal_channels() -> None:
    images = random_bytes(60)
    seen = pixels(view(replace(AS_IT_IS, grey_chance=0.5), images))
    is_gray = (seen.amax(1) - seen.amin(1)).amax((1, 2)) < 1e-5
    assert 15 <= int(is_gray.sum()) <= 45
    untouched = (seen - images / 255).abs().amax((1, 2, 3)) < 1e-5
    assert bool((is_gray ^ untouched).all())


def test_jitter_chance_is_the_share_of_jittered_images() -> None:
    images = random_bytes(200)
    jitter = replace(AS_IT_IS, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, jitter_chance=0.8)
    changed = (pixels(view(jitter, images)) - images / 255).abs().amax((1, 2, 3)) > 1e-4
    assert 140 <= int(changed.sum()) <= 180


def test_colours_stay_in_range_and_the_size_is_the_one_asked_for() -> None:
    wild = ViewSettings(image_size=12, brightness=2, contrast=2, saturation=2, hue=0.5, rotate=180)
    seen = pixels(view(wild, random_bytes(20)))
    assert seen.shape == (20, 3, 12, 12)
    assert float(seen.min()) >= -1e-6
    assert float(seen.max()) <= 1 + 1e-6


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("crop_scale", (0.0, 1.0), "crop_scale must satisfy"),
        ("crop_scale", (0.9, 0.5), "crop_scale must satisfy"),
        ("crop_ratio", (0.0, 1.0), "crop_ratio must satisfy"),
        ("channels", 2, "channels must be 1"),
        ("image_size", 4, "at least 8 pixels"),
        ("normalize", "dta", "did you mean 'data'"),
        ("brightness", -0.1, "brightness must not be negative"),
        ("rotate", -5.0, "rotate must not be negative"),
        ("grey_chance", 1.5, "grey_chance must lie between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ViewSettings(**{field: value})


def test_views_can_be_smaller_at_the_beginning() -> None:
    settings = ViewSettings(image_size=32, start_size=20, grow_after=0.25)
    assert [settings.size_at(done) for done in (0.0, 0.2, 0.25, 1.0)] == [20, 20, 32, 32]
    assert ViewSettings(image_size=32).size_at(0.0) == 32
    images = torch.zeros(3, 3, 32, 32, dtype=torch.uint8)
    augment = Augment(settings, Normalizer.fit(images))
    assert augment(images, torch.Generator().manual_seed(0), 20).shape == (3, 3, 20, 20)
    assert augment(images, torch.Generator().manual_seed(0)).shape == (3, 3, 32, 32)


def test_views_can_grow_step_by_step() -> None:
    settings = ViewSettings(image_size=32, start_size=20, grow_after=0.25, grow_until=0.75)
    seen = [settings.size_at(i / 100) for i in range(101)]
    assert seen == 25 * [20] + 25 * [24] + 25 * [28] + 26 * [32]
    odd = ViewSettings(image_size=32, start_size=22, grow_after=0.0, grow_until=0.5).sizes()
    assert list(odd) == [22, 26, 30, 32]  # the last step is what is left
    assert sum(odd.values()) == pytest.approx(1)
    near = ViewSettings(image_size=32, start_size=28, grow_after=0.25, grow_until=0.75)
    assert near.sizes() == {28: 0.25, 32: 0.75}  # nothing in between
    assert ViewSettings(image_size=32, grow_until=0.9).sizes() == {32: 1.0}


@pytest.mark.parametrize(
    "fields", [{"start_size": 7}, {"start_size": 33}, {"grow_after": 1.1}, {"grow_until": 0.4}]
)
def test_impossible_growth_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(fields))):
        ViewSettings(image_size=32, **fields)  # type: ignore[arg-type]
