"""The gate alone, around an application that only says what it got."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from gradmix.serve.asgi import App, Message, Receive, Send
from gradmix.serve.gate import Door, Gate
from gradmix.serve.limits import Limits
from gradmix.serve.metrics import Metrics

Answer = tuple[int, dict[str, str]]


async def echo(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    body = (await receive())["body"] if scope["method"] == "POST" else b""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps({"bytes": len(body)}).encode()})


def gate(app: App = echo, **limits: Any) -> Gate:
    door = Door(frozenset({"127.0.0.1"}))
    return Gate(app, Limits(rate=0, **limits), door, Metrics(), frozenset({"/v1/predict"}))


async def ask(gate: Gate, receive: Receive, path: str = "/v1/predict", **headers: str) -> Answer:
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
    await gate(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


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
    assert asyncio.run(ask(gate(), chunks(10, 0, 20))) == (200, {"bytes": 30})


def test_a_body_is_counted_while_it_comes() -> None:
    status, told = asyncio.run(ask(gate(upload_bytes=25), chunks(10, 10, 10)))
    assert (status, "larger than 25 bytes" in told["error"]) == (413, True)
    status, _ = asyncio.run(ask(gate(upload_bytes=25), chunks(26), content_length="26"))
    assert status == 413


def test_a_slow_body_is_given_up() -> None:
    status, told = asyncio.run(ask(gate(seconds=0.05), chunks(1, 1, 1, wait=0.04)))
    assert (status, told["error"]) == (408, "the request took longer than 0.05 s to arrive")


def test_bodies_of_all_together_are_bounded_and_given_back() -> None:
    async def many() -> list[Answer]:
        one = gate(held_bytes=100)
        found = await asyncio.gather(*(ask(one, chunks(30, 30, wait=0.02)) for _ in range(5)))
        assert one._held.taken == 0
        return [*found, await ask(one, chunks(60))]

    answers = asyncio.run(many())
    assert answers[-1] == (200, {"bytes": 60})
    assert {status for status, _ in answers} == {200, 503}


def test_a_client_that_goes_away_costs_nothing() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    one = gate()
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
        asyncio.run(gate(broken)(scope, chunks(0), send))
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"]


def test_websockets_are_closed() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(gate()({"type": "websocket", "path": "/"}, chunks(), send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
