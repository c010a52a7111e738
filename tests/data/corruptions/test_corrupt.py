"""What holds for all fifteen: seeds, batches, shapes, growing distortion, and mistakes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from gradmix.data.corruptions import CORRUPTIONS, SEVERITIES, FrostPictures, apply, corrupt
from gradmix.data.corruptions.digital import elastic_transform
from gradmix.data.corruptions.draws import Draws
from gradmix.data.corruptions.severity import _SETTINGS, family, setting
from gradmix.errors import UserError

Make = Callable[..., Tensor]
RANDOM = set(CORRUPTIONS) - {
    "defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"
}  # fmt: skip
# Where the published settings themselves do not raise the mean squared error with each severity: elastic
# moves the corners less and less (while it ripples more), glass blurs away part of what it shuffles.
NOT_BY_PIXELS = {"elastic_transform", "glass_blur"}


def distortion(images: Tensor, name: str, severity: int, ice: FrostPictures) -> float:
    return float((corrupt(images, name, severity, frost=ice).double() - images).square().mean())


def test_there_are_fifteen_with_five_severities_for_each_of_three_sizes() -> None:
    assert set(CORRUPTIONS) == set(_SETTINGS)
    assert len(CORRUPTIONS) == 15
    assert all([len(row) for row in rows] == [5, 5, 5] for rows in _SETTINGS.values())


@pytest.mark.parametrize(("side", "sigma"), [(28, 0.04), (32, 0.04), (33, 0.04), (64, 0.04), (65, 0.08)])
def test_the_table_follows_the_size(side: int, sigma: float) -> None:
    assert setting("gaussian_noise", 1, side, side) == sigma


def test_size_is_the_longer_side() -> None:
    assert family(32, 20) == "CIFAR-10-C"
    assert family(20, 33) == "TinyImageNet-C"
    assert setting("gaussian_noise", 5, 33, 20) == 0.18


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_is_corrupted_alike_in_any_batch(
    name: str, make_images: Make, ice: FrostPictures, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = make_images(7, 3, 32, 32)
    whole = corrupt(images, name, 4, seed=5, frost=ice)
    alone = torch.cat([corrupt(images[i : i + 1], name, 4, 5, ice, first_index=i) for i in range(7)])
    monkeypatch.setattr(apply, "_VALUES_AT_ONCE", 3 * images[0].numel())
    in_chunks = corrupt(images, name, 4, seed=5, frost=ice)
    assert torch.equal(whole, alone)
    assert torch.equal(whole, in_chunks)


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_images_and_seeds_differ(name: str, make_images: Make, ice: FrostPictures) -> None:
    images = make_images(1, 3, 16, 16).repeat(3, 1, 1, 1)
    out = corrupt(images, name, 5, seed=1, frost=ice)
    assert not torch.equal(out[0], out[1])
    assert not torch.equal(out, corrupt(images, name, 5, seed=2, frost=ice))


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in NOT_BY_PIXELS])
def test_distortion_grows_with_severity(name: str, make_images: Make, ice: FrostPictures) -> None:
    images = make_images(16, 3, 64, 64)
    if name == "frost":
        images = images // 4  # pale frost on a pale image is hardly seen, whatever its weight
    errors = [distortion(images, name, severity, ice) for severity in SEVERITIES]
    assert errors[0] > 0
    assert all(less < more for less, more in pairwise(errors)), errors


def test_ripples_grow_with_severity(make_images: Make) -> None:
    """Elastic without its affine part, which shrinks; severity 1 has no ripples at all."""
    images = make_images(8, 3, 64, 64).double() / 255
    errors = []
    for severity in SEVERITIES:
        strength, sigma, _ = setting("elastic_transform", severity, 64, 64)
        rippled = elastic_transform(images, (strength, sigma, 0), Draws(0, "elastic", severity, 0, 8))
        errors.append(float((rippled - images).square().mean()))
    assert errors[0] == pytest.approx(0, abs=1e-20)
    assert all(less < more for less, more in pairwise(errors)), errors


def test_glass_is_worst_at_severity_five(make_images: Make, ice: FrostPictures) -> None:
    images = make_images(8, 3, 64, 64)
    errors = [distortion(images, "glass_blur", severity, ice) for severity in SEVERITIES]
    assert min(errors) > 0
    reach = [setting("glass_blur", severity, 64, 64)[1:] for severity in SEVERITIES]
    assert [a * b for a, b in reach] == sorted(a * b for a, b in reach)
    assert errors[4] > errors[1]


@pytest.mark.parametrize("shape", [(1, 17, 13), (3, 9, 23), (1, 3, 3), (3, 1, 1)])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_grey_odd_and_tiny_images(
    name: str, shape: tuple[int, int, int], make_images: Make, ice: FrostPictures
) -> None:
    images = make_images(2, *shape)
    before = images.clone()
    out = corrupt(images, name, 5, frost=ice)
    assert out.dtype == torch.uint8
    assert out.shape == images.shape
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("value", [0, 255])
def test_black_and_white_stay_in_range(name: str, value: int, ice: FrostPictures) -> None:
    """Overflow would show as white in black or the reverse: the mean stays on its side."""
    out = corrupt(torch.full((2, 3, 12, 12), value, dtype=torch.uint8), name, 2, frost=ice).double().mean()
    assert out <= 130 if value == 0 else out >= 130


def test_images_larger_than_64_take_the_third_table(make_images: Make, ice: FrostPictures) -> None:
    images = make_images(1, 3, 72, 66)
    for name in CORRUPTIONS:
        assert not torch.equal(corrupt(images, name, 3, frost=ice), images)


def test_an_empty_set_stays_empty() -> None:
    assert corrupt(torch.zeros(0, 3, 8, 8, dtype=torch.uint8), "fog", 1).shape == (0, 3, 8, 8)


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5])
def test_bad_severity(severity: int, make_images: Make) -> None:
    with pytest.raises(UserError, match="severity must be"):
        corrupt(make_images(1, 3, 8, 8), "fog", severity)


def test_misspelt_name(make_images: Make) -> None:
    with pytest.raises(UserError, match="did you mean 'defocus_blur'"):
        corrupt(make_images(1, 3, 8, 8), "defocus_blurr", 1)


@pytest.mark.parametrize("images", [torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(1, 3, 8, 8)])
def test_other_tensors_are_refused(images: Tensor) -> None:
    with pytest.raises(UserError, match="must be uint8"):
        corrupt(images, "fog", 1)
