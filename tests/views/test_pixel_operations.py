"""Every operation of RandAugment against Pillow, whose arithmetic it claims to have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from gradmix.views.pixel_operations import sample_nearest
from gradmix.views.randaugment import OPERATIONS, RandAugment, RandAugmentDraws

Picture = Image.Image


def pictures(channels: int = 3, side: int = 24, n: int = 6) -> Tensor:
    """Noise, a low-contrast image, a smooth one, two constant ones, and one with few levels."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, channels, side, side), generator=generator)
    images[1] = 90 + images[1] // 8
    ramp = torch.arange(side)
    images[2] = (3 * ramp[:, None] + 5 * ramp + torch.arange(channels)[:, None, None] * 20) % 256
    images[3] = 77
    images[4] = images[4] // 128 * 255
    images[5, :, 3:, 3:] = 200
    return images.to(torch.uint8)


def to_pillow(image: Tensor) -> Picture:
    if len(image) == 1:
        return Image.fromarray(image[0].numpy())
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def from_pillow(picture: Picture) -> Tensor:
    array = torch.from_numpy(np.array(picture))
    return array[None] if array.ndim == 2 else array.permute(2, 0, 1)


def apply(name: str, images: Tensor, value: float, spot: tuple[float, float] = (0.5, 0.5)) -> Tensor:
    n = len(images)
    draws = RandAugmentDraws(
        torch.full((n, 1), OPERATIONS.index(name)),
        torch.full((n, 1), value, dtype=torch.float64),
        torch.tensor(spot).expand(n, 1, 2),
    )
    return RandAugment.apply(images, draws)


def move(*matrix: float) -> Callable[[Picture], Picture]:
    return lambda picture: picture.transform(picture.size, Image.Transform.AFFINE, matrix)


def solarize_add(picture: Picture, value: float) -> Picture:
    added = np.clip(np.array(picture).astype(float) + value, 0, 255).astype(np.uint8)
    return ImageOps.solarize(Image.fromarray(added), 128)


def cutout(picture: Picture, value: float, spot: tuple[float, float]) -> Picture:
    width, height = picture.size
    left, top = (
        int(max(0, share * side - value / 2)) for share, side in zip(spot, picture.size, strict=True)
    )
    edges = (left, top, min(width, left + value), min(height, top + value))
    picture = picture.copy()
    ImageDraw.Draw(picture).rectangle(edges, 123 if picture.mode == "L" else (125, 123, 114))
    return picture


BYTES = {  # those that compute with whole numbers, or in float64: equal to the byte
    "autocontrast": (1.0, lambda p, v: ImageOps.autocontrast(p)),
    "equalize": (1.0, lambda p, v: ImageOps.equalize(p)),
    "invert": (1.0, lambda p, v: ImageOps.invert(p)),
    "posterize": (2.7, lambda p, v: ImageOps.posterize(p, int(v))),
    "solarize": (100.5, lambda p, v: ImageOps.solarize(p, v)),
    "solarize_add": (29.4, solarize_add),
}
BLENDS = {
    "brightness": ImageEnhance.Brightness,
    "color": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}
MOVES = {
    "rotate": lambda v: lambda p: p.rotate(v),
    "shear_x": lambda v: move(1, v, 0, 0, 1, 0),
    "shear_y": lambda v: move(1, 0, 0, v, 1, 0),
    "translate_x": lambda v: move(1, 0, v, 0, 1, 0),
    "translate_y": lambda v: move(1, 0, 0, 0, 1, v),
    "shift_x": lambda v: lambda p: move(1, 0, int(v * p.size[0]), 0, 1, 0)(p),
    "shift_y": lambda v: lambda p: move(1, 0, 0, 0, 1, int(v * p.size[1]))(p),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", BYTES)
def test_tables_are_pillows(name: str, channels: int) -> None:
    value, theirs = BYTES[name]
    images = pictures(channels)
    found = apply(name, images, value)
    for i, image in enumerate(images):
        assert torch.equal(found[i], from_pillow(theirs(to_pillow(image), value))), i


@pytest.mark.parametrize("value", [0.0, 0.3, 0.9, 5.0])
def test_posterizing_keeps_one_bit_at_least(value: float) -> None:
    images = pictures()
    wanted = from_pillow(ImageOps.posterize(to_pillow(images[0]), max(1, int(value))))
    assert torch.equal(apply("posterize", images, value)[0], wanted)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("value", [0.1, 0.46, 1.0, 1.18, 1.9])
@pytest.mark.parametrize("name", BLENDS)
def test_blends_are_pillows(name: str, value: float, channels: int) -> None:
    """Pillow blends in float32 and cuts off; where a processor rounds once instead of twice, one level."""
    images = pictures(channels)
    found = apply(name, images, value)
    for i, image in enumerate(images):
        wanted = from_pillow(BLENDS[name](to_pillow(image)).enhance(value))
        difference = (found[i].int() - wanted.int()).abs()
        assert int(difference.max()) <= 1, i
        assert float((difference > 0).double().mean()) < 0.02, i


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("name", MOVES)
def test_moves_are_pillows(name: str, sign: int, channels: int) -> None:
    sizes = {"rotate": (6.0, 17.5), "translate_x": (6.0, 20 / 3, 40.0), "translate_y": (6.0, 20 / 3, 40.0)}
    images = pictures(channels)[:, :, :20]  # not square
    for size in sizes.get(name, (0.06, 0.27)):
        found = apply(name, images, sign * size)
        for i, image in enumerate(images):
            assert torch.equal(found[i], from_pillow(MOVES[name](sign * size)(to_pillow(image)))), (size, i)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("value", [0.0, 8.0, 20 / 3, 40.0])
@pytest.mark.parametrize("spot", [(0.5, 0.5), (0.02, 0.97), (0.9, 0.1)])
def test_cutouts_are_the_released_ones(spot: tuple[float, float], value: float, channels: int) -> None:
    images = pictures(channels)
    found = apply("cutout", images, value, spot)
    for i, image in enumerate(images):
        assert torch.equal(found[i], from_pillow(cutout(to_pillow(image), value, spot))), i


def test_identity_and_neutral_values_change_nothing() -> None:
    images = pictures()
    for name, value in {
        "identity": 0.5,
        "rotate": 0,
        "shear_x": 0,
        "translate_y": 0,
        "solarize": 256,
    }.items():
        assert torch.equal(apply(name, images, value), images), name
    for name in BLENDS:
        assert torch.equal(apply(name, images, 1.0), images), name


def test_a_quarter_turn_is_exact() -> None:
    images = pictures()
    about_center = torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 24.0]], dtype=torch.float64).expand(6, 2, 3)
    assert torch.equal(sample_nearest(images, about_center), torch.rot90(images, -1, (2, 3)))
