"""What every request passes first: whose it is, whether it may, how large it is; and what it is counted as.

The body is read here, counted while it comes, so that nothing behind the gate meets one that is too large or
too slow. Bodies in memory are bounded for all requests together.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from .asgi import App, Message, Receive, Send, send_json
from .limits import Budget, Limits, RateLimit
from .metrics import Metrics
from .origin import check_host, check_origin
from .page_gate import PAGE, check_page_body, check_page_path, is_page, is_page_stream
from .refusal import BROKEN, Refusal

_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_DISCARDED_BEYOND = 4  # a client is heard out for so many times the limit: it reads no answer while it sends
_SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    # Whatever a page asks for, the browser lets it ask this server only.
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
        b"script-src 'self' 'unsafe-inline' 'unsafe-eval'; connect-src 'self'; font-src 'self' data:; "
        b"worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'self'; form-action 'self'",
    ),
]


@dataclass(frozen=True)
class Door:
    """Names that the server answers to, and whether it listens beyond this machine."""

    names: frozenset[str]
    listens_beyond: bool = False


class Gate:
    """ASGI middleware around the API and the page."""

    def __init__(
        self, app: App, limits: Limits, door: Door, metrics: Metrics, endpoints: frozenset[str]
    ) -> None:
        self._app = app
        self._limits = limits
        self._door = door
        self._metrics = metrics
        self._endpoints = endpoints
        self._rate = RateLimit(limits.rate)
        self._held = Budget(limits.held_bytes)
        self._streams: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # nothing here speaks it
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._handle(scope, receive, send)

    def end_streams(self) -> None:
        """Let go of pages that are open in browsers: they would hold up the end for ever."""
        for task in self._streams:
            task.cancel()

    async def _handle(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        started, path, status = time.perf_counter(), str(scope["path"]), 0
        incoming = _Incoming(receive)

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_SECURITY]
            await send(message)

        try:
            await self._admit(scope, incoming, noting_send)
        except Refusal as refusal:
            if not status:
                await self._hear_out(scope, incoming)
                await send_json(noting_send, refusal.status, refusal.body, refusal.headers)
        except Exception:
            if not status:
                await send_json(noting_send, 500, BROKEN.body)
            raise  # into the log
        finally:
            endpoint = path if path in self._endpoints else PAGE if is_page(path) else "other"
            self._metrics.answered(endpoint, status, time.perf_counter() - started)

    async def _admit(self, scope: MutableMapping[str, Any], receive: _Incoming, send: Send) -> None:
        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        path, method = str(scope["path"]), str(scope["method"])
        host = headers.get(b"host")
        check_host(host, self._door.names, self._door.listens_beyond)
        check_page_path(path)
        if is_page_stream(path):
            await self._stream(scope, receive, send)
            return
        if method not in _CHANGES:
            await self._app(scope, receive, send)
            return
        check_origin(headers.get(b"origin"), headers.get(b"sec-fetch-site"), host)
        wait = self._rate.wait((scope.get("client") or ("",))[0])
        if wait:
            limit = f"{self._limits.rate:g} requests a second"
            raise Refusal(429, f"too many requests; the limit is {limit}", retry_after=math.ceil(wait))
        body = bytearray()
        try:
            await self._read(receive, body, headers.get(b"content-length"))
            check_page_body(path, body)
            await self._app(scope, _replay(bytes(body), receive), send)
        finally:
            self._held.give_back(len(body))

    async def _read(self, receive: Receive, body: bytearray, announced: str | None) -> None:
        """The whole body into ``body``; what is in there was taken from the budget."""
        most = self._limits.upload_bytes
        refusal = Refusal(413, f"the request is larger than {most:,} bytes; send fewer or smaller images")
        if announced and announced.isdecimal() and int(announced) > most:
            raise refusal
        try:
            async with asyncio.timeout(self._limits.seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(400, "the client went away")
                    chunk = message.get("body", b"")
                    if len(body) + len(chunk) > most:
                        raise refusal
                    self._held.take(len(chunk))
                    body += chunk
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Refusal(408, f"the request took longer than {self._limits.seconds:g} s to arrive") from None

    async def _hear_out(self, scope: MutableMapping[str, Any], incoming: _Incoming) -> None:
        """Discard what the client still sends, within reason, so that it reads why it was refused."""
        if any(key == b"expect" for key, _ in scope["headers"]):
            return  # it asks before it sends
        left = _DISCARDED_BEYOND * self._limits.upload_bytes
        try:
            async with asyncio.timeout(min(5.0, self._limits.seconds)):
                while left > 0 and not incoming.ended:
                    left -= len((await incoming()).get("body", b""))
        except TimeoutError:
            pass

    async def _stream(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """An answer that lasts as long as a page is open, unless the server ends."""
        task = asyncio.ensure_future(self._app(scope, receive, send))
        self._streams.add(task)
        try:
            await task
        except asyncio.CancelledError:
            task.cancel()
        finally:
            self._streams.discard(task)


class _Incoming:
    """``receive`` that remembers whether all of the request has come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.ended = self.ended or not message.get("more_body", False)
        return message


def _replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, as the application asks for it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()  # from here on: whether the client is still there
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
