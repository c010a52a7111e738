from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradmix.data import decoding
from gradmix.data.decoding import Unreadable, decode, open_image, refuse_bombs, upright_size


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(int)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM"])
def test_formats(kind: str) -> None:
    red = decode(encoded(Image.new("RGB", (6, 4), (250, 10, 20)), kind))
    assert (red.mode, red.size) == ("RGB", (6, 4))
    assert np.abs(pixels(red) - [250, 10, 20]).max() <= 6


def test_transparent_becomes_white() -> None:
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert pixels(decode(encoded(clear))).min() == 255
    half = Image.new("RGBA", (4, 4), (0, 0, 0, 128))
    assert abs(pixels(decode(encoded(half))).mean() - 127) <= 1
    grey = decode(encoded(Image.new("LA", (4, 4), (0, 0))))
    assert grey.mode == "L"
    assert pixels(grey).min() == 255


def test_palette_with_and_without_transparency() -> None:
    red = Image.new("RGB", (4, 4), (255, 0, 0)).quantize(4)
    assert red.mode == "P"
    assert pixels(decode(encoded(red)))[0, 0].tolist() == [255, 0, 0]
    index = red.getpixel((0, 0))
    assert pixels(decode(encoded(red, transparency=index)))[0, 0].tolist() == [255, 255, 255]


def test_deep_grey_is_scaled_not_clipped() -> None:
    deep = np.linspace(0, 65535, 16).astype(np.uint16).reshape(4, 4)
    plain = decode(encoded(Image.fromarray(deep)))
    assert plain.mode == "L"
    assert np.array_equal(pixels(plain), deep >> 8)
    whole = decode(encoded(Image.fromarray(deep.astype(np.int32)), "TIFF"))
    assert np.array_equal(pixels(whole), deep >> 8)
    fraction = decode(encoded(Image.fromarray((deep / 65535).astype(np.float32)), "TIFF"))
    assert np.abs(pixels(fraction) - deep / 257).max() <= 1


def test_one_bit_and_cmyk() -> None:
    assert set(pixels(decode(encoded(Image.new("1", (4, 4), 1)))).flat) == {255}
    cyan = decode(encoded(Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "JPEG"))
    assert cyan.mode == "RGB"
    assert pixels(cyan)[4, 4, 0] < 60 < 200 < pixels(cyan)[4, 4, 2]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_rotation_of_cameras_is_undone(kind: str) -> None:
    lying = Image.new("RGB", (20, 10))
    lying.paste((255, 255, 255), (0, 0, 10, 10))  # left half white
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate 90° clockwise to view": the left goes to the top
    content = encoded(lying, kind, exif=exif)
    with open_image(content) as opened:
        assert upright_size(opened) == (20, 10)
    upright = decode(content)
    assert upright.size == (10, 20)
    assert pixels(upright)[3, 5].min() > 240
    assert pixels(upright)[16, 5].max() < 15


def test_a_large_photo_is_decoded_small_but_alike() -> None:
    ramp = np.linspace(0, 255, 640).astype(np.uint8)
    photo = Image.fromarray(np.broadcast_to(ramp, (480, 640)).copy())
    small = decode(encoded(photo, "JPEG", quality=95), 16)
    exact = photo.crop((80, 0, 560, 480)).resize((16, 16), Image.Resampling.BOX)
    assert small.size == (16, 16)
    assert np.abs(pixels(small) - pixels(exact)).max() <= 3


def test_a_very_long_image_is_no_burden() -> None:
    assert decode(encoded(Image.new("L", (50_000, 1))), 64).size == (64, 64)


def test_damaged_images_say_what_is_wrong(tmp_path: Path) -> None:
    whole = encoded(Image.effect_noise((64, 64), 50).convert("RGB"), "JPEG")
    empty = tmp_path / "empty.png"
    empty.touch()
    for source, complaint in [
        (b"", "0 bytes"),
        (empty, "0 bytes"),
        (b"GIF89a but not really", "cannot be opened|not an image|damaged"),
        (b"hello", "not an image"),
        (encoded(Image.new("RGB", (8, 8)), "EPS"), "not an image in a known format"),  # no Ghostscript
        (whole[: len(whole) // 2], "damaged.*truncated"),
        (tmp_path / "missing.png", "cannot be opened"),
        (tmp_path, "cannot be opened"),
    ]:
        with pytest.raises(Unreadable, match=complaint):
            decode(source)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"])
def test_bytes_cut_or_changed_anywhere_are_an_image_or_unreadable(
    kind: str, rng: np.random.Generator
) -> None:
    """Never another exception: one bad file of a hundred thousand must not end the reading of the rest."""
    content = encoded(Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)), kind)
    for _ in range(150):
        broken = bytearray(content[: rng.integers(1, len(content) + 1)])
        for _ in range(rng.integers(0, 4)):
            broken[rng.integers(len(broken))] = rng.integers(256)
        with refuse_bombs():
            try:
                image = decode(bytes(broken), 8)
            except Unreadable:
                continue
        assert image.size == (8, 8)


def test_bombs_are_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(Image.new("1", (300, 300)))
    monkeypatch.setattr(decoding, "MAX_PIXELS", 80_000)
    with pytest.raises(Unreadable, match="too large: 300 x 300"):
        decode(content)
    for limit in (80_000, 10_000):  # Pillow warns beyond its limit, and refuses beyond twice that
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with warnings.catch_warnings(), refuse_bombs(), pytest.raises(Unreadable, match="too large"):
            decode(content)
