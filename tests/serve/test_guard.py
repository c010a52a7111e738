"""The guard around an application that only reports the size of the body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from gradmix.serve.access import HostPolicy
from gradmix.serve.guard import RequestGuard
from gradmix.serve.http import App, Message, Receive, Send
from gradmix.serve.limits import Limits, RequestContext, get_context
from gradmix.serve.service import Metrics

Answer = tuple[int, dict[str, str]]


async def echo(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    body = (await receive())["body"] if scope["method"] == "POST" else b""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps({"bytes": len(body)}).encode()})


def make_guard(app: App = echo, metrics: Metrics | None = None, **limits: Any) -> RequestGuard:
    hosts = HostPolicy(frozenset({"127.0.0.1"}))
    bounds = Limits(**{"rate": 0, **limits})
    count = (metrics or Metrics()).count_request
    return RequestGuard(app, bounds, hosts, count, frozenset({"/v1/predict"}))


async def ask(guard: RequestGuard, receive: Receive, path: str = "/v1/predict", **headers: str) -> Answer:
    status, body, _ = await ask_fully(guard, receive, path, **headers)
    return status, body


async def ask_fully(
    guard: RequestGuard, receive: Receive, path: str = "/v1/predict", **headers: str
) -> tuple[int, dict[str, str], dict[str, str]]:
    """Status, body and headers of the answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    pairs = {"host": "127.0.0.1"} | {key.replace("_", "-"): value for key, value in headers.items()}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "client": ("127.0.0.1", 1),
        "headers": [(key.encode(), value.encode()) for key, value in pairs.items()],
    }
    await guard(scope, receive, send)
    told = {key.decode().lower(): value.decode() for key, value in sent[0]["headers"]}
    return sent[0]["status"], json.loads(sent[1]["body"]), told


def chunks(*sizes: int, wait: float = 0.0) -> Receive:
    """A body that comes in pieces, with pauses; then the client stays, and is silent."""
    left = list(sizes)

    async def receive() -> Message:
        if not left:
            await asyncio.sleep(3600)
        await asyncio.sleep(wait)
        return {"type": "http.request", "body": b"x" * left.pop(0), "more_body": bool(left)}

    return receive


def test_a_body_comes_through_whole() -> None:
    assert asyncio.run(ask(make_guard(), chunks(10, 0, 20))) == (200, {"bytes": 30})


def test_a_body_is_counted_while_it_comes() -> None:
    status, told = asyncio.run(ask(make_guard(upload_bytes=25), chunks(10, 10, 10)))
    assert (status, "larger than 25 bytes" in told["error"]) == (413, True)
    status, _ = asyncio.run(ask(make_guard(upload_bytes=25), chunks(26), content_length="26"))
    assert status == 413


def test_a_slow_body_is_given_up() -> None:
    status, told = asyncio.run(ask(make_guard(seconds=0.05), chunks(1, 1, 1, wait=0.04)))
    assert (status, told["error"]) == (408, "the request took longer than 0.05 s to arrive")


def test_bodies_of_all_together_are_bounded_and_given_back() -> None:
    async def many() -> list[Answer]:
        one = make_guard(held_bytes=100)
        found = await asyncio.gather(*(ask(one, chunks(30, 30, wait=0.02)) for _ in range(5)))
        assert one._held.taken == 0
        return [*found, await ask(one, chunks(60))]

    answers = asyncio.run(many())
    assert answers[-1] == (200, {"bytes": 60})
    assert {status for status, _ in answers} == {200, 503}


def test_too_many_requests_are_told_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    one = make_guard(rate=0.4)  # a burst of one, and the next after 2.5 seconds
    monkeypatch.setattr(one._rate, "_clock", lambda: 0.0)
    assert asyncio.run(ask(one, chunks(1)))[0] == 200
    status, told, headers = asyncio.run(ask_fully(one, chunks(1)))
    assert (status, told["error"]) == (429, "too many requests; the limit is 0.4 requests a second")
    assert headers["retry-after"] == "3"  # not sooner


def test_every_answer_keeps_the_browser_to_this_host() -> None:
    for size, expected in ((10, 200), (30, 413)):
        status, _, headers = asyncio.run(ask_fully(make_guard(upload_bytes=20), chunks(size)))
        assert status == expected
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'self'" in headers["content-security-policy"]


def counted(*sizes: int) -> tuple[Receive, list[int]]:
    """A body in pieces, and a list of those that were read."""
    read: list[int] = []
    rest = chunks(*sizes)

    async def receive() -> Message:
        message = await rest()
        read.append(len(message["body"]))
        return message

    return receive, read


@pytest.mark.parametrize(
    ("headers", "pieces", "expected"),
    [
        ({}, 3, 3),  # read to its end: a client reads no answer while it sends
        ({}, 50, 8),  # but not without end: four times the limit
        ({"expect": "100-continue"}, 3, 0),  # it has not begun to send
    ],
)
def test_the_rest_of_a_rejected_body(headers: dict[str, str], pieces: int, expected: int) -> None:
    receive, read = counted(*[10] * pieces)
    one = make_guard(upload_bytes=20)
    assert asyncio.run(ask(one, receive, origin="http://evil.example", **headers))[0] == 403
    assert len(read) == expected


def test_the_application_is_told_the_client_and_its_deadline() -> None:
    found: list[RequestContext] = []

    async def noting(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        found.append(get_context(scope))
        await echo(scope, receive, send)

    asyncio.run(ask(make_guard(noting, seconds=5.0, answer_seconds=7.0), chunks(1)))
    assert (found[0].client, found[0].deadline.seconds) == ("127.0.0.1", 7.0)


def test_metrics_name_the_endpoints_there_are_and_no_others() -> None:
    """Whoever asks for many paths makes no new metrics."""
    metrics = Metrics()
    one = make_guard(metrics=metrics)
    for path in ("/v1/predict", "/ui/page.js", "/a", "/b"):
        asyncio.run(ask(one, chunks(1), path))
    text = metrics.text().decode()
    for endpoint, status, count in (
        ("/v1/predict", 200, 1),
        ("/ui", 200, 1),
        ("other", 200, 2),
    ):
        assert f'gradmix_requests_total{{endpoint="{endpoint}",status="{status}"}} {count:.1f}' in text
    assert '"/a"' not in text


def body(content: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    return receive


@pytest.mark.parametrize(
    ("path", "content", "headers", "status"),
    [
        ("/v1/predict", b"x", {"origin": "http://127.0.0.1"}, 200),
        ("/v1/predict", b"x", {"origin": "http://evil.example"}, 403),
        ("/v1/predict", b"x", {"sec_fetch_site": "cross-site"}, 403),
        ("/v1/undo", b"", {"origin": "http://evil.example"}, 403),
        ("/v1/predict", b"x", {"host": "evil.example"}, 421),
    ],
)
def test_what_is_refused_never_reaches_the_application(
    path: str, content: bytes, headers: dict[str, str], status: int
) -> None:
    reached: list[str] = []

    async def noting(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        reached.append(scope["path"])
        await echo(scope, receive, send)

    found, _ = asyncio.run(ask(make_guard(noting), body(content), path, **headers))
    assert found == status
    assert reached == ([path] if status == 200 else [])


def test_a_client_that_goes_away_costs_nothing() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    one = make_guard()
    asyncio.run(ask(one, gone))
    assert one._held.taken == 0


def test_what_breaks_is_told_in_one_line_and_raised_for_the_log() -> None:
    async def broken(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        raise RuntimeError("secret")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"127.0.0.1")]}
    with pytest.raises(RuntimeError):
        asyncio.run(make_guard(broken)(scope, chunks(0), send))
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"]


def test_websockets_are_closed() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(make_guard()({"type": "websocket", "path": "/"}, chunks(), send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
