"""Requests that no decent client sends: a seeded stream of them, as raw bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np

from tests.serve.conftest import png_of

Random = np.random.Generator
_PATHS = (
    "/v1/predict",
    "/v1/explain",
    "/v1/discover",
    "/v1/enroll",
    "/v1/forget",
    "/v1/undo",
    "/v1/classes",
)
_METHODS = ("GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW", "post")
_TYPES = (
    "application/json",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/mixed; boundary=x",
    "multipart/form-data",
    "multipart/form-data; boundary=",
    'multipart/form-data; boundary="',
    "image/png",
    "\xff",
    "application/x-python-pickle",
    "multipart/form-data; boundary=" + "b" * 300,
)
_NAMES = (
    "../../etc/passwd",
    "/etc/passwd",
    "C:\\x",
    "a\x00b",
    "\u202e.png",
    "",
    "x" * 5000,
    "%00",
    "http://127.0.0.1/",
    '"; name="name',
    "a.pkl",
)


class Evil:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return (open, ("/nowhere/at/all",))


def http(
    path: str, body: bytes = b"", method: str = "POST", headers: str = "", length: int | None = None
) -> bytes:
    announced = len(body) if length is None else length
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {announced}\r\n{headers}\r\n"
    return head.encode("utf-8", "surrogateescape") + body


def form(content: bytes, file_name: str = "a.png", field: str = "images", more: bytes = b"") -> bytes:
    head = f'--x\r\nContent-Disposition: form-data; name="{field}"; filename="{file_name}"\r\n\r\n'
    return more + head.encode() + content + b"\r\n--x--\r\n"


FORM = "Content-Type: multipart/form-data; boundary=x\r\n"


def junk(random: Random, most: int = 400) -> bytes:
    return random.integers(0, 256, int(random.integers(0, most)), dtype=np.uint8).tobytes()


def any_path(random: Random) -> str:
    return str(random.choice(_PATHS))


def wrong_method(random: Random) -> bytes:
    return http(any_path(random), method=str(random.choice(_METHODS)))


def wrong_path(random: Random) -> bytes:
    ends = (
        "/v2/predict",
        "/v1/predict/../../etc",
        "//",
        "/%00",
        "/ui/../../etc/passwd",
        "/\u00fc",
        "*",
        "x",
    )
    return http(str(random.choice(ends)), junk(random))


def wrong_type(random: Random) -> bytes:
    return http(any_path(random), junk(random), headers=f"Content-Type: {random.choice(_TYPES)}\r\n")


def broken_form(random: Random) -> bytes:
    whole = form(png_of("bar"))
    cut = int(random.integers(0, len(whole)))
    return http(any_path(random), whole[:cut] + junk(random), headers=FORM)


def damaged_image(random: Random) -> bytes:
    image = bytearray(png_of("bar"))
    for place in random.integers(8, len(image), int(random.integers(1, 20))):
        image[place] = int(random.integers(0, 256))
    return http(any_path(random), form(bytes(image[: int(random.integers(1, len(image)))])), headers=FORM)


def claimed_format(random: Random) -> bytes:
    beginnings = (
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xe0",
        b"RIFF",
        b"GIF89a",
        b"BM",
        b"II*\0",
        b"P6 ",
        b"%!PS-Adobe",
    )
    beginning = beginnings[int(random.integers(len(beginnings)))]
    return http(any_path(random), form(beginning + junk(random)), headers=FORM)


def a_pickle(random: Random) -> bytes:
    body = pickle.dumps(Evil(), protocol=int(random.integers(0, 6)))
    if random.random() < 0.5:
        return http(any_path(random), body, headers="Content-Type: application/octet-stream\r\n")
    return http(any_path(random), form(body, "model.pkl"), headers=FORM)


def odd_name(random: Random) -> bytes:
    field = str(random.choice(["images", "file", "path", "model", "\u00fc", ""]))
    return http(any_path(random), form(junk(random), str(random.choice(_NAMES)), field), headers=FORM)


def empty_files(random: Random) -> bytes:
    return http(any_path(random), form(b"") if random.random() < 0.5 else b"", headers=FORM)


def bad_parameters(random: Random) -> bytes:
    values = ("-1", "x", "1e99", "%00", "\u00fc", "9" * 400, "", "../..", "1;2")
    value = values[int(random.integers(len(values)))]
    key = str(random.choice(["classes", "neighbours", "format", "min_size", "name", "add"]))
    return http(f"{any_path(random)}?{key}={value}", form(png_of("bar")), headers=FORM)


def bad_enrolment(random: Random) -> bytes:
    names = ("unknown", "bar", " ", "\x07", "n" * 2000, "\u200b", "a\r\nb")
    field = f'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n{random.choice(names)}\r\n'
    return http("/v1/enroll", form(png_of("bar"), more=field.encode()), headers=FORM)


def odd_headers(random: Random) -> bytes:
    headers = (
        "X-Long: " + "x" * 70_000 + "\r\n",
        "A: b\r\n" * 3000,
        "no colon\r\n",
        "Host: evil.example\r\n",
        "X: \x00\r\n",
        "Authorization: Bearer \u00fc\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Origin: http://evil.example\r\n",
        "Content-Length: 5\r\n",
        "Expect: 100-continue\r\n",
        "Upgrade: websocket\r\n",
        "Origin: http://[\r\n",
    )
    return http(any_path(random), junk(random), headers=headers[int(random.integers(len(headers)))])


def wrong_length(random: Random) -> bytes:
    length = int(random.choice([-1, 10**6, 10**12, 2**63]))
    return http(any_path(random), junk(random), headers=FORM, length=length)


def not_http(random: Random) -> bytes:
    return junk(random, 2000) + b"\r\n\r\n"


def page_get(random: Random) -> bytes:
    ends = ("", "page.js", "page.css", "%2e%2e/page.py", "page_files", "x" * 3000)
    return http(f"/ui/{random.choice(ends)}", junk(random), str(random.choice(["PUT", "DELETE", "POST"])))


KINDS = (
    wrong_method,
    wrong_path,
    wrong_type,
    broken_form,
    damaged_image,
    claimed_format,
    a_pickle,
    odd_name,
    empty_files,
    bad_parameters,
    bad_enrolment,
    odd_headers,
    wrong_length,
    not_http,
    page_get,
)


def requests(count: int, seed: int = 0) -> list[tuple[str, bytes]]:
    """``count`` of them, of all kinds in turn, each with its kind's name."""
    random = np.random.default_rng(seed)
    return [(kind.__name__, kind(random)) for kind in (KINDS[i % len(KINDS)] for i in range(count))]
