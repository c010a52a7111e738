"""What a client is told when its request is not answered: a status and one line."""

from __future__ import annotations

import json


class Refusal(Exception):
    """A 4xx, or a 503: more work than the server takes on, or a disk that it cannot write to."""

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = one_line(reason)
        self.retry_after = retry_after

    @property
    def body(self) -> bytes:
        return json.dumps({"error": self.reason}).encode()

    @property
    def headers(self) -> dict[str, str]:
        """Beside the content type: when to try again, or how to show who one is."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return headers | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def one_line(text: str, longest: int = 300) -> str:
    """Text of a client's making, safe to send back and to log.

    >>> one_line("a\\nb\\x1b[31m")
    'a b [31m'
    """
    words = "".join(c if c.isprintable() else " " for c in text).split()
    line = " ".join(words)
    return line if len(line) <= longest else line[: longest - 1] + "…"


BROKEN = Refusal(500, "something went wrong here; the server's log says what")
