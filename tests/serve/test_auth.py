"""The token: where it comes from, and what passes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradmix.errors import UserError
from gradmix.serve.auth import Guard, read_token
from gradmix.serve.refusal import Refusal


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer wrong", "Bearer gehëim!"]
)
def test_only_the_token_passes(header: str | None) -> None:
    Guard(None).check_header(header)  # none is set: all pass
    guard = Guard("secret-token")
    with pytest.raises(Refusal) as refused:
        guard.check_header(header)
    assert refused.value.status == 401
    assert refused.value.headers == {"WWW-Authenticate": "Bearer"}
    guard.check_header("Bearer secret-token")
    guard.check_header("bearer  secret-token ")


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
