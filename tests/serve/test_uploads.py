"""Bodies to forms to pixels: decoded as by the library; what is broken or dangerous is rejected."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import tracemalloc
import zlib

import httpx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gradmix.data import ImageFormat
from gradmix.data.decoding import decode_many
from gradmix.serve.http import HTTPError
from gradmix.serve.limits import Limits, PixelBudget
from gradmix.serve.uploads import (
    DecodedImages,
    Form,
    Upload,
    UploadDecoder,
    decode_uploads,
    display_name,
    parse_form,
    split_parts,
)
from tests.serve.conftest import encoded, png_of, webp

WANTED = ImageFormat(16, 3)
PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def read(*contents: bytes, limits: Limits | None = None, wanted: ImageFormat = WANTED) -> DecodedImages:
    uploads = [Upload(f"{i}.png", content) for i, content in enumerate(contents)]
    return decode_uploads(uploads, wanted, limits or Limits())


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
    decoded = read(content, wanted=ImageFormat(16, channels))
    assert decoded.images.shape == (1, channels, 16, 16)
    expected = decode_many([content], ["a"], size=16, channels=channels).images
    assert torch.equal(decoded.images, torch.as_tensor(expected[:]))


def test_one_bad_image_does_not_spoil_the_others() -> None:
    whole = png_of("bar")
    decoded = read(whole, whole[:100], b"", whole)
    assert decoded.kept == (0, 3)
    assert set(decoded.errors) == {1, 2}
    assert decoded.errors[2] == "2.png is empty (0 bytes)"
    assert torch.equal(decoded.images[0], decoded.images[1])
    assert decoded.image_set().sources == ("0.png", "3.png")
    with pytest.raises(HTTPError, match=r"1\.png is damaged .*; nothing was changed"):
        decoded.require_all()


def test_nothing_readable_is_refused() -> None:
    with pytest.raises(HTTPError, match=r"0\.png is not an image in a known format") as refused:
        read(b"no image")
    assert refused.value.status == 422
    with pytest.raises(HTTPError, match=r"and 1 more; none can be read"):
        read(b"no image", b"nor this")
    with pytest.raises(HTTPError, match="there is no image"):
        read()


def test_limits() -> None:
    with pytest.raises(HTTPError, match="3 images in one request; the limit is 2") as refused:
        read(*[png_of("bar")] * 3, limits=Limits(images=2))
    assert refused.value.status == 413
    with pytest.raises(HTTPError, match="60 x 40 pixels, the limit is 2,000"):
        read(encoded(PHOTO), limits=Limits(pixels=2000))
    assert len(read(encoded(PHOTO), limits=Limits(pixels=2400)).images) == 1


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [6000, 12_000, 60_000, 2**31 - 1])
def test_bombs_are_refused_unopened(side: int) -> None:
    with pytest.raises(HTTPError, match="too large"):
        read(bomb(side))


def test_formats_that_start_programs_or_run_code_are_refused() -> None:
    for kind, reason in (("EPS", "is not an image in a known format"), ("TGA", "is TGA; send one of")):
        file = io.BytesIO()
        Image.fromarray(PHOTO).save(file, kind)
        with pytest.raises(HTTPError, match=reason):
            read(file.getvalue())
    for content in (pickle.dumps(PHOTO), b"<svg onload='x'/>", b"%PDF-1.7", b"GIF89a", b"RIFF\0\0\0\0WEBP"):
        with pytest.raises(HTTPError):
            read(content)


# What a request costs


def cost(content: bytes) -> int:
    return UploadDecoder([Upload("a", content)], ImageFormat(16, 3), Limits()).pixels


def test_headers_tell_the_cost() -> None:
    photo = np.zeros((300, 400, 3), dtype=np.uint8)
    for kind in ("PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM"):
        assert cost(encoded(photo, kind)) == 120_000
    assert cost(encoded(photo, "JPEG")) == 30_000  # decoded at an eighth of its size
    assert cost(encoded(photo, "JPEG", progressive=True)) == 120_000  # many passes over all of it
    assert cost(encoded(photo[:20, :20], "JPEG")) == 400  # too small to be reduced
    assert cost(b"no image") == 0


def test_what_may_not_be_decoded_costs_nothing() -> None:
    uploads = [Upload("a", webp(200)), Upload("b", webp(20))]
    decoder = UploadDecoder(uploads, ImageFormat(16, 3), Limits(pixels=1000))
    assert (decoder.pixels, decoder.left) == (400, 1)
    decoder.decode_next()
    assert set(decoder.result().errors) == {0}


def test_64_photos_of_a_phone_are_no_attack() -> None:
    photo = encoded(np.zeros((3000, 4000, 3), dtype=np.uint8), "JPEG", quality=30)
    decoder = UploadDecoder([Upload("a", photo)] * 64, ImageFormat(32, 3), Limits())
    PixelBudget(Limits()).take("a", decoder.pixels)


# Forms


def parse_sent(**what: object) -> Form:
    """The form in what httpx sends."""
    request = httpx.Request("POST", "http://x/", **what)  # type: ignore[arg-type]
    return parse_form(request.read(), request.headers.get("content-type", ""))


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.text(max_size=50))
def test_what_is_sent_comes_out(contents: list[bytes], text: str) -> None:
    text = "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)
    form = parse_sent(
        data={"name": text}, files=[("images", (f"{i}.png", c)) for i, c in enumerate(contents)]
    )
    assert [upload.content for upload in form.uploads] == contents
    assert form.fields == {"name": text}


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    for content in (body, b"--x\r\n" + body, b"--x\r\n" + body + b"\r\n--x--"):
        with contextlib.suppress(HTTPError):  # any other exception fails
            parse_form(content, "multipart/form-data; boundary=x")


def test_one_image_as_the_body() -> None:
    assert parse_form(b"abc", "image/png") == Form((Upload("image", b"abc"),))
    with pytest.raises(HTTPError, match="empty"):
        parse_form(b"", "image/png")


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{}", "application/json", 415),
        (b"abc", "", 415),
        (b"abc", "multipart/form-data", 400),
        (b"abc", "multipart/form-data; boundary=x", 400),
        (b"--x\r\nabc", "multipart/form-data; boundary=x", 400),
        (b"--x\r\nabc\r\n--x--", "multipart/form-data; boundary=x", 400),
        (b"--xyz\r\n\r\nabc\r\n--x--", "multipart/form-data; boundary=x", 400),
        (b"--x\r\nA: b\r\n\r\nabc\r\n--x--", "multipart/form-data; boundary=x", 400),
    ],
)
def test_broken_bodies(body: bytes, content_type: str, status: int) -> None:
    with pytest.raises(HTTPError) as raised:
        parse_form(body, content_type)
    assert raised.value.status == status


def test_files_belong_into_one_field() -> None:
    with pytest.raises(HTTPError, match="go into the field 'images', not 'file'"):
        parse_sent(files={"file": ("a.png", b"abc")})
    with pytest.raises(HTTPError, match="too long"):
        parse_sent(data={"name": "x" * 1001}, files={"images": b"a"})
    with pytest.raises(HTTPError, match="more than 16"):
        parse_sent(data={f"f{i}": "x" for i in range(17)}, files={"images": b"a"})


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a.png", "a.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\photos\\a b.png", "a b.png"),
        ("x\0y\x1b.png", "x y .png"),
        ("/", "image 1"),
        ("katze-\u00fc.png", "katze-\u00fc.png"),
        ("\u202egnp.exe", "gnp.exe"),
    ],
)
def test_a_name_is_never_a_path(name: str, shown: str) -> None:
    assert display_name(name, "image 1") == shown


def test_names_in_both_encodings() -> None:
    body = (
        b"--x\r\nContent-Disposition: form-data; name=images; filename*=UTF-8''%C3%BC%2Fb.png\r\n\r\nabc\r\n"
        b'--x\r\ncontent-disposition: form-data; name="images"; filename=""\r\n\r\n\r\n--x--\r\n'
    )
    form = parse_form(body, 'multipart/form-data; boundary="x"')
    assert form.uploads == (Upload("b.png", b"abc"), Upload("image 2", b""))


def test_parts_may_hold_what_looks_like_a_boundary() -> None:
    body = b"--x\r\nA: b\r\n\r\none --x two\r\n-x\r\n--x--"
    assert split_parts(body, b"x") == [(b"A: b", b"one --x two\r\n-x")]


def test_preamble_and_spaces_after_a_boundary() -> None:
    body = b"for old mail programs\r\n--x\r\nA: b\r\n\r\none\r\n--x  \r\nA: b\r\n\r\ntwo\r\n--x--\r\nepilogue"
    assert split_parts(body, b"x") == [(b"A: b", b"one"), (b"A: b", b"two")]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"--x\r\nA: " + b"a" * 10_000_000 + b"\r\n\r\n\r\n--x--\r\n", 413),  # one long header
        (b"--x" + b" " * 1_000_000 + b"\r\nA: b\r\n\r\n\r\n--x--\r\n", 400),
        (b"--x\r\n" + b"\r\n".join([b"A:b"] * 1_000_000) + b"\r\n\r\n\r\n--x--\r\n", 413),
        (b"--x\r\nA: b\r\n\r\n\r\n" * 1_000_000 + b"--x--", 413),  # very many parts
    ],
)
def test_what_is_large_where_it_should_be_small_is_refused_without_a_copy(body: bytes, status: int) -> None:
    tracemalloc.start()
    with pytest.raises(HTTPError) as refused:
        split_parts(body, b"x")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.status == status
    assert peak < len(body) + 10_000_000
