from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gradmix.data.decoding import _fit_square
from gradmix.data.resize import fit_square, is_gray, to_color, to_gray


def random_images(n: int, channels: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, channels, height, width), generator=generator, dtype=torch.uint8)


def test_grey_is_pillows_and_grey_in_colour_comes_back() -> None:
    colour = random_images(5, 3, 7, 6)
    ours = to_gray(colour)
    for image, grey in zip(colour, ours, strict=True):
        pillows = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).convert("L")
        assert np.array_equal(grey[0].numpy(), np.asarray(pillows))
    assert torch.equal(to_gray(to_color(ours)), ours)
    assert is_gray(to_color(ours))
    assert not is_gray(colour)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_fitting_gives_the_size_and_stays_in_range(height: int, width: int, size: int) -> None:
    images = random_images(2, 1, height, width)
    fitted = fit_square(images, size)
    assert fitted.shape == (2, 1, size, size)
    assert int(fitted.max()) <= int(images.max())
    assert int(fitted.min()) >= int(images.min())


@pytest.mark.parametrize(("height", "width", "size"), [(64, 64, 32), (50, 31, 16), (9, 20, 24)])
def test_batches_and_single_files_are_resized_alike(height: int, width: int, size: int) -> None:
    """To within rounding: Pillow works in fixed point."""
    image = random_images(1, 3, height, width)
    pillow = _fit_square(Image.fromarray(image[0].permute(1, 2, 0).contiguous().numpy()), size)
    batch = fit_square(image, size)[0].permute(1, 2, 0).numpy().astype(int)
    assert np.abs(batch - np.asarray(pillow).astype(int)).max() <= 1


def test_the_centre_is_kept_and_a_fine_pattern_is_averaged_not_sampled() -> None:
    wide = torch.zeros(1, 1, 4, 12, dtype=torch.uint8)
    wide[..., 4:8] = 200
    assert fit_square(wide, 4).unique().tolist() == [200]
    stripes = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    stripes[..., ::2] = 200
    inner = fit_square(stripes, 8)[..., 1:-1]
    assert inner.float().sub(100).abs().max() < 5


def test_more_images_than_fit_one_batch() -> None:
    images = random_images(1500, 3, 4, 4)
    assert torch.equal(fit_square(images, 2)[1400:], fit_square(images[1400:], 2))
    assert torch.equal(to_gray(images)[1400:], to_gray(images[1400:]))
