from __future__ import annotations

import base64
import io

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from gradmix.errors import UserError
from gradmix.report import Example, contact_sheet, heat_overlay, png, png_data_uri


def pictures(n: int, channels: int, height: int = 5, width: int = 7) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, channels, height, width), generator=g, dtype=torch.uint8)
    return images, torch.rand(n, height, width, generator=g)


def slow_overlay(image: Tensor, heat: Tensor, strength: float) -> Tensor:
    """Pixel by pixel: (1 − w)·grey + w·colour(heat), w = strength·√heat."""
    out = torch.zeros(3, *heat.shape)
    inferno = matplotlib.colormaps["inferno"]
    for y in range(heat.shape[0]):
        for x in range(heat.shape[1]):
            r, g, b = (float(image[c % len(image), y, x]) for c in range(3))
            grey = 0.299 * r + 0.587 * g + 0.114 * b
            w = strength * float(heat[y, x]) ** 0.5
            colour = inferno(round(float(heat[y, x]) * 255), bytes=True)
            for c in range(3):
                out[c, y, x] = (1 - w) * grey + w * float(colour[c])
    return out


def decode(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize("channels", [1, 3])
def test_overlay_agrees_with_the_slow_version(channels: int) -> None:
    images, heat = pictures(3, channels)
    out = heat_overlay(images, heat)
    assert out.shape == (3, 3, 5, 7)
    assert out.dtype == torch.uint8
    for i in range(3):
        slow = slow_overlay(images[i], heat[i], 0.75)
        assert (out[i].float() - slow).abs().max() <= 0.51
        assert torch.equal(heat_overlay(images[i], heat[i]), out[i])


def test_cold_grey_pictures_stay_as_they_are() -> None:
    images, heat = pictures(2, 1)
    assert torch.equal(heat_overlay(images, torch.zeros_like(heat)), images.expand(-1, 3, -1, -1))


def test_overlay_survives_heat_out_of_range() -> None:
    images, _ = pictures(1, 3, 1, 4)
    wild = torch.tensor([[[float("nan"), -3.0, 7.0, float("inf")]]])
    tame = torch.tensor([[[0.0, 0.0, 1.0, 1.0]]])
    assert torch.equal(heat_overlay(images, wild), heat_overlay(images, tame))


def test_overlay_names_what_does_not_fit() -> None:
    images, heat = pictures(2, 3)
    with pytest.raises(UserError, match="does not fit"):
        heat_overlay(images, heat[:, :-1])
    with pytest.raises(UserError, match=r"torch\.float32"):
        heat_overlay(images.float(), heat)


def test_contact_sheet_places_every_image() -> None:
    images, _ = pictures(5, 3)
    sheet = decode(contact_sheet(images, columns=3, scale=2))
    height, width = 2 * 5 + 4, 2 * 7 + 4
    assert sheet.shape == (2 * height, 3 * width, 3)
    for i in range(5):
        top, left = i // 3 * height + 2, i % 3 * width + 2
        tile = sheet[top : top + 10 : 2, left : left + 14 : 2]
        assert np.array_equal(tile, images[i].permute(1, 2, 0).numpy())
    assert (sheet[height:, 2 * width :] == 255).all()  # the empty place


def test_contact_sheet_with_captions_none_and_too_few() -> None:
    images, _ = pictures(3, 1)
    plain = decode(contact_sheet(images, columns=8, scale=8))
    named = decode(contact_sheet(images, columns=8, scale=8, captions=["a", "b" * 300, ""]))
    assert named.shape[0] > plain.shape[0]
    assert named.shape[1] == plain.shape[1]
    assert contact_sheet(images[:0], columns=4, scale=1)
    with pytest.raises(UserError, match="1 captions for 3 images"):
        contact_sheet(images, captions=["a"])
    with pytest.raises(UserError, match="columns=0"):
        contact_sheet(images, columns=0)


def test_data_uri_enlarges_tiny_images_and_shrinks_large_ones() -> None:
    tiny, _ = pictures(1, 1, 28, 28)
    uri = png_data_uri(tiny[0], smallest=96)
    assert uri.startswith("data:image/png;base64,")
    shown = decode(base64.b64decode(uri.split(",")[1]))
    assert shown.shape == (112, 112, 3)
    assert np.array_equal(shown[::4, ::4, 0], tiny[0, 0].numpy())
    assert png_data_uri(tiny[0, 0], smallest=96) == uri  # without a channel axis, too
    large, _ = pictures(1, 3, 400, 1000)
    assert decode(base64.b64decode(png_data_uri(large[0]).split(",")[1])).shape == (128, 320, 3)


def test_png_is_exact_and_deterministic() -> None:
    images, _ = pictures(1, 3)
    assert np.array_equal(decode(png(images[0])), images[0].permute(1, 2, 0).numpy())
    assert png(images[0]) == png(images[0].clone())
    with pytest.raises(UserError, match="no pixels"):
        png(images[0, :, :0])


@pytest.mark.parametrize(
    ("known", "accepted", "predicted", "right"),
    [
        (True, True, "cat", True),
        (True, True, "dog", False),
        (True, False, "unknown", False),
        (False, False, "unknown", True),
        (False, True, "dog", False),
        (None, True, "cat", None),
    ],
)
def test_whether_a_verdict_is_right(
    known: bool | None, accepted: bool, predicted: str, right: bool | None
) -> None:
    image, _ = pictures(1, 1)
    assert Example(image[0], None, "cat", predicted, 0.5, accepted, known).right is right
