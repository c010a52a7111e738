"""Bodies to forms: what clients send comes out as it was, what is broken is refused with a reason."""

from __future__ import annotations

import contextlib

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmix.serve.form import Form, Upload, parse_form, shown_name, split_parts
from gradmix.serve.refusal import Refusal


def sent(**what: object) -> Form:
    """The form in what httpx sends."""
    request = httpx.Request("POST", "http://x/", **what)  # type: ignore[arg-type]
    return parse_form(request.read(), request.headers.get("content-type", ""))


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.text(max_size=50))
def test_what_is_sent_comes_out(contents: list[bytes], text: str) -> None:
    text = "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)
    form = sent(data={"name": text}, files=[("images", (f"{i}.png", c)) for i, c in enumerate(contents)])
    assert [upload.content for upload in form.uploads] == contents
    assert form.fields == {"name": text}


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    for content in (body, b"--x\r\n" + body, b"--x\r\n" + body + b"\r\n--x--"):
        with contextlib.suppress(Refusal):  # any other exception fails
            parse_form(content, "multipart/form-data; boundary=x")


def test_one_image_as_the_body() -> None:
    assert parse_form(b"abc", "image/png") == Form((Upload("image", b"abc"),))
    with pytest.raises(Refusal, match="empty"):
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
    with pytest.raises(Refusal) as refused:
        parse_form(body, content_type)
    assert refused.value.status == status


def test_files_belong_into_one_field() -> None:
    with pytest.raises(Refusal, match="go into the field 'images', not 'file'"):
        sent(files={"file": ("a.png", b"abc")})
    with pytest.raises(Refusal, match="too long"):
        sent(data={"name": "x" * 1001}, files={"images": b"a"})
    with pytest.raises(Refusal, match="more than 16"):
        sent(data={f"f{i}": "x" for i in range(17)}, files={"images": b"a"})


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
    assert shown_name(name, "image 1") == shown


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
