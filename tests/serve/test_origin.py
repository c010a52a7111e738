"""Pages of other sites and foreign names are kept out; people and programs are not."""

from __future__ import annotations

import pytest

from gradmix.serve.origin import allowed_names, check_host, check_origin, is_loopback
from gradmix.serve.refusal import Refusal


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:7860", "localhost:7860", "LocalHost", "[::1]:7860"])
def test_own_names_pass(host: str) -> None:
    check_host(host, allowed_names("127.0.0.1"), listens_beyond=False)


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "127.0.0.1.evil.example", "192.168.0.7", "a b", "x@localhost", "localhost/"],
)
def test_other_names_are_refused(host: str | None) -> None:
    with pytest.raises(Refusal) as refused:
        check_host(host, allowed_names("127.0.0.1"), listens_beyond=False)
    assert refused.value.status == 421


def test_listening_to_others() -> None:
    names = allowed_names("0.0.0.0", ["photos.example"])
    for host in ("192.168.0.7:7860", "[fe80::1]", "photos.example", "localhost"):
        check_host(host, names, listens_beyond=True)
    with pytest.raises(Refusal):
        check_host("evil.example", names, listens_beyond=True)


def test_origins() -> None:
    check_origin(None, None, "127.0.0.1:7860")  # curl
    check_origin("http://127.0.0.1:7860", "same-origin", "127.0.0.1:7860")
    for origin, site in [
        ("http://evil.example", "cross-site"),
        ("null", None),
        ("http://[", None),
        ("http://127.0.0.1:8000", "same-site"),
        (None, "cross-site"),
    ]:
        with pytest.raises(Refusal) as refused:
            check_origin(origin, site, "127.0.0.1:7860")
        assert refused.value.status == 403


def test_loopback() -> None:
    assert [is_loopback(host) for host in ("::1", "127.8.8.8", "0.0.0.0", "::", "example")] == [
        True, True, False, False, False,
    ]  # fmt: skip
