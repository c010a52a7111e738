"""What the guard refuses of the page's events, of foreign pages, and of what clients claim."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from gradmix.serve.guard import RequestGuard, check_page_body
from gradmix.serve.http import HTTPError, Message, Receive, Send
from tests.serve.test_guard import chunks, echo, make_guard


@pytest.mark.parametrize(
    "event",
    [
        {"data": [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}]},
        {"data": [None, [{"p": {"url": "http://169.254.169.254/"}}]]},
        {"event_data": {"files": [{"path": "x"}]}},
        ["x"],
        "x",
    ],
)
@pytest.mark.parametrize("path", ["/ui/gradio_api/queue/join", "/ui/gradio_api/run/predict"])
def test_events_name_no_files(event: object, path: str) -> None:
    with pytest.raises(HTTPError):
        check_page_body(path, json.dumps(event).encode(), {0: 1})


def test_events_that_are_not_json_or_too_deep() -> None:
    for body in (b"", b"{", b"[" * 100_000, b'{"a":' * 50 + b"1" + b"}" * 50, b"\xff"):
        with pytest.raises(HTTPError):
            check_page_body("/ui/gradio_api/queue/join", body, {0: 1})


GOOD = {"fn_index": 3, "data": [None], "session_hash": "abc", "event_data": {"files": [{"name": "a"}]}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"fn_index": 99},
        {"fn_index": "3"},
        {"fn_index": None},
        {"fn_index": True},
        {"data": {}},
        {"data": []},
        {"data": [1, 2]},
        {"session_hash": None},
        {"session_hash": "x" * 1000},
        {"trigger_id": "x"},
    ],
)
@pytest.mark.parametrize("path", ["/ui/gradio_api/queue/join", "/ui/gradio_api/run/predict"])
def test_events_that_the_page_has_not(wrong: dict[str, Any], path: str) -> None:
    """Gradio answers them with a 500, and a traceback in the log."""
    check_page_body(path, json.dumps(GOOD).encode(), {3: 1})
    with pytest.raises(HTTPError) as refused:
        check_page_body(path, json.dumps(GOOD | wrong).encode(), {3: 1})
    assert refused.value.status == 422


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
    for path in ("/healthz", "/metrics", "/ui/config", "/openapi.json"):
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
    asyncio.run(ask_for(guard, "GET", "/ui/config", x_gradio_server="http://evil", **claims))
    asyncio.run(ask_for(guard, "GET", "/", x_forwarded_host="127.0.0.1:80", x_forwarded_proto="https"))
    asyncio.run(ask_for(guard, "GET", "/", x_forwarded_proto="javascript"))
    assert seen[0] == seen[2] == {b"host": b"127.0.0.1"}
    assert seen[1] == {
        b"host": b"127.0.0.1",
        b"x-forwarded-host": b"127.0.0.1:80",  # a name of this server
        b"x-forwarded-proto": b"https",
    }


def test_open_pages_of_one_client_are_limited() -> None:
    async def forever(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(3600)

    guard = make_guard(forever)

    async def open_many() -> int:
        path = "/ui/gradio_api/heartbeat/a"
        tasks = [asyncio.create_task(ask_for(guard, "GET", path)) for _ in range(64)]
        while len(guard._streams) < 64:
            await asyncio.sleep(0)
        status = await ask_for(guard, "GET", path)
        guard.end_streams()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not guard._streams_of
        return status

    assert asyncio.run(open_many()) == 429
