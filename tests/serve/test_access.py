"""Pages of other sites, foreign host names and wrong tokens are rejected; own ones pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.errors import UserError
from gradmix.serve.access import AccessToken, HostPolicy, check_origin, choose_token, is_loopback, read_token
from gradmix.serve.http import HTTPError


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic abc", "Basic secret-token", "Bearer wrong", "Bearer gehëim!"],
)
def test_only_the_token_passes(header: str | None) -> None:
    AccessToken(None).check_header(header)  # none is set: all pass
    token = AccessToken("secret-token")
    with pytest.raises(HTTPError) as refused:
        token.check_header(header)
    assert refused.value.status == 401
    assert refused.value.headers == {"WWW-Authenticate": "Bearer"}
    token.check_header("Bearer secret-token")
    token.check_header("bearer  secret-token ")


def test_the_token_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRADMIX_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("GRADMIX_TOKEN", "of-the-environment")
    assert read_token(None) == "of-the-environment"
    file = tmp_path / "token"
    file.write_text("of-the-file\nsecond line\n")
    assert read_token(file) == "of-the-file"
    with pytest.raises(UserError, match="cannot read the token"):
        read_token(tmp_path / "nowhere")
    for bad in ("", "short", "with a space in it", "nicht-ascii-ü"):
        file.write_text(bad)
        with pytest.raises(UserError, match="8 or more ASCII"):
            read_token(file)
    monkeypatch.setenv("GRADMIX_TOKEN", "")  # set, but to nothing: surely not meant as "no token"
    with pytest.raises(UserError, match="GRADMIX_TOKEN"):
        read_token(None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:7860", "localhost:7860", "LocalHost", "[::1]:7860"])
def test_own_names_pass(host: str) -> None:
    HostPolicy.for_address("127.0.0.1").check(host)


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "127.0.0.1.evil.example", "192.168.0.7", "a b", "x@localhost", "localhost/"],
)
def test_other_names_are_refused(host: str | None) -> None:
    with pytest.raises(HTTPError) as refused:
        HostPolicy.for_address("127.0.0.1").check(host)
    assert refused.value.status == 421


def test_listening_to_others() -> None:
    policy = HostPolicy.for_address("0.0.0.0", ["photos.example"])
    for host in ("192.168.0.7:7860", "[fe80::1]", "photos.example", "localhost"):
        policy.check(host)
    with pytest.raises(HTTPError):
        policy.check("evil.example")


def test_origins() -> None:
    check_origin(None, None, "127.0.0.1:7860")  # curl
    check_origin("http://127.0.0.1:7860", "same-origin", "127.0.0.1:7860")
    check_origin("http://photos.example", "same-origin", "Photos.Example")  # browsers write small letters
    for origin, site in [
        ("http://evil.example", "cross-site"),
        ("null", None),
        ("http://[", None),
        ("http://127.0.0.1:8000", "same-site"),
        (None, "cross-site"),
        (None, "same-site"),
    ]:
        with pytest.raises(HTTPError) as refused:
            check_origin(origin, site, "127.0.0.1:7860")
        assert refused.value.status == 403


def test_loopback() -> None:
    assert [is_loopback(host) for host in ("::1", "127.8.8.8", "0.0.0.0", "::", "example")] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_beyond_this_machine_there_is_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRADMIX_TOKEN", raising=False)
    assert choose_token("127.0.0.1", None, none=False) == (None, False)
    assert choose_token("0.0.0.0", None, none=True) == (None, False)
    token, made = choose_token("0.0.0.0", None, none=False)
    assert made
    assert token is not None
    assert len(token) >= 20
    assert token != choose_token("0.0.0.0", None, none=False)[0]
    (tmp_path / "token").write_text(token)
    assert choose_token("0.0.0.0", tmp_path / "token", none=False) == (token, False)
    monkeypatch.setenv("GRADMIX_TOKEN", "correct-horse")
    assert choose_token("0.0.0.0", None, none=False) == ("correct-horse", False)
    with pytest.raises(UserError, match="not both"):
        choose_token("0.0.0.0", tmp_path / "token", none=True)
