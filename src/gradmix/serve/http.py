"""HTTP without a framework: the ASGI types, an error with a status and one line, and a JSON response."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class HTTPError(Exception):
    """A request that is not answered: a 4xx, or a 503 (too much work, or a disk that cannot be written)."""

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
        """Return the headers beside the content type: when to try again, or how to authenticate."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return headers | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def one_line(text: str, longest: int = 300) -> str:
    """Return text from a client as one printable line, safe to send back and to log.

    >>> one_line("a\\nb\\x1b[31m")
    'a b [31m'
    """
    words = "".join(c if c.isprintable() else " " for c in text).split()
    line = " ".join(words)
    return line if len(line) <= longest else line[: longest - 1] + "…"


INTERNAL_ERROR = HTTPError(500, "something went wrong here; the server's log says what")


async def send_json(send: Send, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    """Send a whole response."""
    fields = {"content-type": "application/json", "content-length": str(len(body))} | (headers or {})
    pairs = [(key.lower().encode(), value.encode()) for key, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
