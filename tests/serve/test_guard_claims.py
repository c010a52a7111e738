"""What the guard refuses of foreign pages, and does not believe of what clients claim."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from gradmix.serve.guard import RequestGuard
from gradmix.serve.http import Message, Receive, Send
from tests.serve.test_guard import chunks, echo, make_guard


def test_reading_is_limited_too_at_a_higher_rate() -> None:
    guard = make_guard(rate=0.05)  # reading: a request in two seconds, and a burst of one

    async def read() -> list[int]:
        return [await ask_for(guard, "GET", "/healthz") for _ in range(3)]

    statuses = asyncio.run(read())
    assert statuses[0] == 200
    assert statuses[-1] == 429


async def ask_for(guard: RequestGuard, method: str, path: str, **headers: str) -> int:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    pairs = {"host": "127.0.0.1"} | {key.replace("_", "-"): value for key, value in headers.items()}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "client": ("127.0.0.1", 1),
        "headers": [(key.encode(), value.encode()) for key, value in pairs.items()],
    }
    await guard(scope, chunks(0), send)
    return int(sent[0]["status"])


def test_a_foreign_page_cannot_read_either() -> None:
    guard = make_guard()
    evil = {"origin": "http://evil.example", "sec_fetch_site": "cross-site"}
    for path in ("/healthz", "/metrics", "/ui/page.js", "/openapi.json"):
        assert asyncio.run(ask_for(guard, "GET", path)) == 200
        assert asyncio.run(ask_for(guard, "GET", path, **evil)) == 403
        assert asyncio.run(ask_for(guard, "GET", path, sec_fetch_site="cross-site")) == 403
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert asyncio.run(ask_for(guard, "GET", "/ui/", **link)) == 200  # a link may be followed


def test_what_a_client_claims_about_a_proxy_is_not_believed() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def note(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        seen.append(dict(scope["headers"]))
        await echo(scope, receive, send)

    claims = {"x_forwarded_host": "evil.example", "x_forwarded_for": "1.2.3.4", "forwarded": "host=evil"}
    guard = make_guard(note)
    asyncio.run(ask_for(guard, "GET", "/ui/page.js", x_gradio_server="http://evil", **claims))
    asyncio.run(ask_for(guard, "GET", "/", x_forwarded_host="127.0.0.1:80", x_forwarded_proto="https"))
    asyncio.run(ask_for(guard, "GET", "/", x_forwarded_proto="javascript"))
    assert seen[0] == seen[2] == {b"host": b"127.0.0.1"}
    assert seen[1] == {
        b"host": b"127.0.0.1",
        b"x-forwarded-host": b"127.0.0.1:80",  # a name of this server
        b"x-forwarded-proto": b"https",
    }
