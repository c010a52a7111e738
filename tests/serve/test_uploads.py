"""Images that clients send: decoded as everywhere, and nothing that could hurt."""

from __future__ import annotations

import io
import pickle
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from gradmix.data.decode_many import decode_many
from gradmix.recognition.any_images import Wanted
from gradmix.serve.form import Upload
from gradmix.serve.limits import Limits
from gradmix.serve.refusal import Refusal
from gradmix.serve.uploads import Pictures, all_readable, read_pictures
from tests.serve.conftest import encoded, png_of

WANTED = Wanted(16, 3)
PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def read(*contents: bytes, limits: Limits | None = None, wanted: Wanted = WANTED) -> Pictures:
    uploads = [Upload(f"{i}.png", content) for i, content in enumerate(contents)]
    return read_pictures(uploads, wanted, limits or Limits())


def bomb(side: int) -> bytes:
    """A PNG of a few hundred bytes that claims side × side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    content = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + content


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_those_of_the_library(format: str, channels: int) -> None:
    content = encoded(PHOTO, format)
    pictures = read(content, wanted=Wanted(16, channels))
    assert pictures.images.shape == (1, channels, 16, 16)
    expected = decode_many([content], ["a"], size=16, channels=channels).images
    assert torch.equal(pictures.images, torch.as_tensor(expected[:]))


def test_one_bad_image_does_not_spoil_the_others() -> None:
    whole = png_of("bar")
    pictures = read(whole, whole[:100], b"", whole)
    assert pictures.kept == (0, 3)
    assert set(pictures.errors) == {1, 2}
    assert pictures.errors[2] == "2.png is empty (0 bytes)"
    assert torch.equal(pictures.images[0], pictures.images[1])
    assert pictures.image_set().sources == ("0.png", "3.png")
    with pytest.raises(Refusal, match=r"1\.png is damaged .*; nothing was changed"):
        all_readable(pictures)


def test_nothing_readable_is_refused() -> None:
    with pytest.raises(Refusal, match=r"0\.png is not an image in a known format") as refused:
        read(b"no image")
    assert refused.value.status == 422
    with pytest.raises(Refusal, match=r"and 1 more; none can be read"):
        read(b"no image", b"nor this")
    with pytest.raises(Refusal, match="there is no image"):
        read()


def test_limits() -> None:
    with pytest.raises(Refusal, match="3 images in one request; the limit is 2") as refused:
        read(*[png_of("bar")] * 3, limits=Limits(images=2))
    assert refused.value.status == 413
    with pytest.raises(Refusal, match="60 x 40 pixels, the limit is 2,000"):
        read(encoded(PHOTO), limits=Limits(pixels=2000))
    assert len(read(encoded(PHOTO), limits=Limits(pixels=2400)).images) == 1


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [6000, 12_000, 60_000, 2**31 - 1])
def test_bombs_are_refused_unopened(side: int) -> None:
    with pytest.raises(Refusal, match="too large"):
        read(bomb(side))


def test_formats_that_start_programs_or_run_code_are_refused() -> None:
    for kind, reason in (("EPS", "is not an image in a known format"), ("TGA", "is TGA; send one of")):
        file = io.BytesIO()
        Image.fromarray(PHOTO).save(file, kind)
        with pytest.raises(Refusal, match=reason):
            read(file.getvalue())
    for content in (pickle.dumps(PHOTO), b"<svg onload='x'/>", b"%PDF-1.7", b"GIF89a", b"RIFF\0\0\0\0WEBP"):
        with pytest.raises(Refusal):
            read(content)
