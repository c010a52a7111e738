"""Pad-crops, the gain, and that the settings which came later change nothing until they are used."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.views import Augment, Normalizer, ViewSettings
from gradmix.views.color import color_matrix, factors, jitter
from gradmix.views.geometry import crop_matrices, draw_shifts, sample, shift

PLAIN = ViewSettings(crop="pad", image_size=12, jitter_chance=0, grey_chance=0)
HALF = Normalizer((0.5,) * 3, (0.25,) * 3)


def images(n: int = 30, channels: int = 3, side: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1, 256, (n, channels, side, side), generator=generator).to(torch.uint8)


def views_before(
    s: ViewSettings, batch: Tensor, normalizer: Normalizer, generator: torch.Generator
) -> Tensor:
    """The views as they were before these settings: the same numbers drawn, the same calls in their order."""
    n, one = len(batch), torch.ones(len(batch))
    crops = crop_matrices(n, s.crop_scale, s.crop_ratio, s.flip, s.rotate, generator)
    jittered = torch.rand(n, generator=generator) < s.jitter_chance
    brightness = torch.where(jittered, factors(n, s.brightness, generator), one)
    contrast = torch.where(jittered, factors(n, s.contrast, generator), one)
    matrix = None
    if batch.shape[1] == 3:
        saturation = torch.where(jittered, factors(n, s.saturation, generator), one)
        grey = torch.rand(n, generator=generator) < s.grey_chance
        saturation = saturation.masked_fill(grey, 0.0)
        hue = ((2 * torch.rand(n, generator=generator) - 1) * s.hue).masked_fill(~jittered, 0.0)
        matrix = color_matrix(saturation, hue)
    view = sample(batch.float().div_(255), crops, s.image_size)
    return normalizer(jitter(view, brightness, contrast, matrix))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("fields", [{}, {"jitter_chance": 0.0, "grey_chance": 0.0}, {"rotate": 20.0}])
def test_without_the_new_settings_the_views_are_the_old_ones(fields: dict[str, float], channels: int) -> None:
    settings = ViewSettings(image_size=16, channels=channels, **fields)  # type: ignore[arg-type]
    batch, normalizer = images(channels=channels), Normalizer((0.4,) * channels, (0.3,) * channels)
    old, new = torch.Generator().manual_seed(7), torch.Generator().manual_seed(7)
    wanted = views_before(settings, batch, normalizer, old)
    assert torch.equal(Augment(settings, normalizer)(batch, new), wanted)
    assert torch.equal(new.get_state(), old.get_state())


def test_kinds_of_crops_take_the_same_random_numbers() -> None:
    one, other = torch.Generator().manual_seed(4), torch.Generator().manual_seed(4)
    crop_matrices(5, (0.2, 1), (0.75, 1.33), True, 10, one)
    draw_shifts(5, 4, True, 10, other)
    assert torch.equal(one.get_state(), other.get_state())


@pytest.mark.parametrize(("mode", "theirs"), [("zero", "constant"), ("reflect", "reflect")])
def test_a_shift_is_a_crop_of_the_padded_image(mode: str, theirs: str) -> None:
    batch = images(81)
    shifts = torch.tensor([[dx, dy, (dx + dy) % 2] for dx in range(-4, 5) for dy in range(-4, 5)])
    found = shift(batch, shifts, mode)
    padded = torch.nn.functional.pad(batch.float(), (4, 4, 4, 4), mode=theirs).to(torch.uint8)
    for i, (dx, dy, mirrored) in enumerate(shifts.tolist()):
        wanted = padded[i, :, 4 + dy : 16 + dy, 4 + dx : 16 + dx]
        assert torch.equal(found[i], wanted.flip(2) if mirrored else wanted), i


def test_all_shifts_are_equally_likely_and_flips_only_where_allowed() -> None:
    shifts, _ = draw_shifts(9000, 4, True, 0.0, torch.Generator().manual_seed(0))
    for axis in (0, 1):
        counts = torch.bincount(shifts[:, axis] + 4, minlength=9)
        assert len(counts) == 9
        assert 850 < int(counts.min()) <= int(counts.max()) < 1150
    assert float(shifts[:, 2].double().mean()) == pytest.approx(0.5, abs=0.03)
    assert int(draw_shifts(500, 4, False, 0.0, torch.Generator().manual_seed(0))[0][:, 2].max()) == 0


def test_pad_crops_keep_the_bytes() -> None:
    """No interpolation and no color: what is seen is the shifted image, to the byte."""
    batch, augment = images(), Augment(PLAIN, Normalizer((0.0,) * 3, (1.0,) * 3))
    draws = augment.draw(len(batch), torch.Generator().manual_seed(1))
    assert draws.shifts is not None
    seen = (augment.apply(batch, draws) * 255).round().to(torch.uint8)
    assert torch.equal(seen, shift(batch, draws.shifts, "zero"))
    assert len({tuple(row) for row in draws.shifts[:, :2].tolist()}) > 15
    reflected = Augment(replace(PLAIN, pad_mode="reflect"), augment.normalizer).apply(batch, draws)
    assert float(reflected.min()) > 0  # no pixel of these images is black
    assert int(seen.min()) == 0


def test_pad_crops_can_be_rotated_jittered_and_resized() -> None:
    batch = images()
    generator = torch.Generator().manual_seed(1)
    still = replace(PLAIN, pad=0, flip=False)
    small = Augment(still, HALF)(batch, generator, 8)
    whole = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]]).expand(len(batch), 2, 3)
    torch.testing.assert_close(small, HALF(sample(batch.float() / 255, whole, 8)))
    for fields in ({"rotate": 30.0}, {"jitter_chance": 1.0}, {"grey_chance": 1.0}):
        changed = Augment(replace(still, **fields), HALF)(batch, torch.Generator().manual_seed(1))
        assert not torch.allclose(changed, HALF(batch), atol=1e-3), fields


def test_the_gain_multiplies_the_normalized_image() -> None:
    batch = images(200)
    plain, more = Augment(PLAIN, HALF), Augment(replace(PLAIN, gain=(0.1, 2.0)), HALF)
    before = plain(batch, torch.Generator().manual_seed(2))
    after = more(batch, torch.Generator().manual_seed(2))
    draws = more.draw(200, torch.Generator().manual_seed(2))
    assert draws.gain is not None
    torch.testing.assert_close(after, before * draws.gain.view(-1, 1, 1, 1))
    assert 0.1 <= float(draws.gain.min()) < 0.15
    assert 1.95 < float(draws.gain.max()) <= 2.0
    assert plain.draw(2, torch.Generator()).gain is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"crop": "pads"}, "did you mean 'pad'"),
        ({"pad_mode": "reflct"}, "did you mean 'reflect'"),
        ({"pad": -1}, "pad must lie between 0 and"),
        ({"pad": 32}, "pad must lie between 0 and"),
        ({"gain": (0.0, 1.0)}, "gain must satisfy"),
        ({"gain": (2.0, 1.0)}, "gain must satisfy"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ViewSettings(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["data", "imagenet", "cifar", "half", "none"])
def test_normalizing_can_be_undone(kind: str, channels: int) -> None:
    batch = images(channels=channels)
    normalizer = Normalizer.fit(batch, kind)
    torch.testing.assert_close(normalizer.inverse(normalizer(batch)), batch.float() / 255)
    if kind == "none":
        assert torch.equal(normalizer(batch), batch.float() / 255)
    if (kind, channels) == ("cifar", 3):
        assert normalizer == Normalizer((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
