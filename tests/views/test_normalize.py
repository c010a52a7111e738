from __future__ import annotations

import pytest
import torch

from gradmix.errors import UserError
from gradmix.views import Normalizer


def random_bytes(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_the_statistics_are_those_of_the_data() -> None:
    images = random_bytes(50, 3, 4, 4)
    images[:, 1] //= 4
    normalizer = Normalizer.fit(images)
    for c in range(3):
        values = [int(v) / 255 for v in images[:, c].flatten()]
        mean = sum(values) / len(values)
        std = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
        assert normalizer.mean[c] == pytest.approx(mean, abs=1e-5)
        assert normalizer.std[c] == pytest.approx(std, abs=1e-5)
    seen = normalizer(images)
    assert seen.dtype == torch.float32
    torch.testing.assert_close(seen.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(seen.std((0, 2, 3)), torch.ones(3), rtol=0, atol=1e-4)


def test_a_large_set_is_sampled_over_its_whole_length() -> None:
    images = torch.zeros(20_000, 1, 2, 2, dtype=torch.uint8)
    images[10_000:] = 255  # a set sorted by class: the first images alone would mislead
    assert Normalizer.fit(images).mean[0] == pytest.approx(0.5)


def test_constant_images_do_not_divide_by_zero() -> None:
    seen = Normalizer.fit(torch.full((3, 1, 4, 4), 7, dtype=torch.uint8))(torch.zeros(1, 1, 4, 4))
    assert bool(torch.isfinite(seen).all())


def test_bytes_and_unit_floats_are_the_same_to_it() -> None:
    images = random_bytes(2, 3, 4, 4)
    normalizer = Normalizer((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    torch.testing.assert_close(normalizer(images), normalizer(images.float() / 255))


def test_fixed_statistics() -> None:
    assert Normalizer.fit(random_bytes(2, 3, 4, 4), "imagenet") == Normalizer(
        (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    )
    assert Normalizer.fit(random_bytes(2, 1, 4, 4), "half") == Normalizer((0.5,), (0.5,))
    assert Normalizer.fit(random_bytes(2, 1, 4, 4), "imagenet").mean[0] == pytest.approx(0.449, abs=1e-3)
    with pytest.raises(UserError, match="did you mean 'imagenet'"):
        Normalizer.fit(random_bytes(2, 1, 4, 4), "imagnet")
