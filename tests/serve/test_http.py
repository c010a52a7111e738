"""Errors as clients see them."""

from __future__ import annotations

from gradmix.serve.http import one_line


def test_texts_of_clients_become_one_line() -> None:
    assert one_line("a\r\nSet-Cookie: b\x00\x1b[2J") == "a Set-Cookie: b [2J"
    assert len(one_line("x" * 10_000)) == 300
