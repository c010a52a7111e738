"""What every request passes first: host and origin, rate, page routes, size; and every request is counted.

The body is read here and counted while it arrives, so that no code behind the guard gets a body that is too
large or too slow. The bytes of all bodies in memory are bounded together.

The page is a few static files that call the API like any other client, so that nothing here is about it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from .access import HostPolicy, check_origin, drop_forwarded
from .http import INTERNAL_ERROR, App, HTTPError, Message, Receive, Scope, Send, send_json
from .limits import Budget, Deadline, Limits, RateLimit, RequestContext, set_context

PAGE = "/ui"
_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_READING_FACTOR = 10  # a client may read so many times as often as it may ask; the page has many parts
_DRAIN_FACTOR = 4  # of a rejected request, discard at most so many times the limit
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    # The browser blocks every request of the page to another host.
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
        b"script-src 'self'; connect-src 'self'; font-src 'self' data:; "
        b"worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'self'; form-action 'self'",
    ),
]


class RequestGuard:
    """ASGI middleware around the API and the page.

    ``count_request`` is called after every request, with its endpoint, status and seconds; paths that are
    not in ``endpoints`` are "other", or the page.
    """

    def __init__(
        self,
        app: App,
        limits: Limits,
        hosts: HostPolicy,
        count_request: Callable[[str, int, float], None],
        endpoints: frozenset[str],
    ) -> None:
        self._app = app
        self._limits = limits
        self._hosts = hosts
        self._count_request = count_request
        self._endpoints = endpoints
        self._rate = RateLimit(limits.rate)
        self._reading_rate = RateLimit(_READING_FACTOR * limits.rate)
        self._held = Budget(limits.held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # not used by the API or the page
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, path, status = time.perf_counter(), str(scope["path"]), 0
        incoming = _Incoming(receive)

        async def send_secured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_SECURITY_HEADERS]
            await send(message)

        try:
            await self._admit(scope, incoming, send_secured)
        except HTTPError as error:
            if not status:
                await self._drain_body(scope, incoming)
                await send_json(send_secured, error.status, error.body, error.headers)
        except Exception:
            if not status:
                await send_json(send_secured, 500, INTERNAL_ERROR.body)
            raise  # uvicorn logs it
        finally:
            endpoint = path if path in self._endpoints else PAGE if is_page(path) else "other"
            self._count_request(endpoint, status, time.perf_counter() - started)

    async def _admit(self, scope: Scope, receive: _Incoming, send: Send) -> None:
        """Check the request, read its body, and pass it to the application."""
        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        method = str(scope["method"])
        host = headers.get(b"host")
        self._hosts.check(host)
        site, mode = headers.get(b"sec-fetch-site"), headers.get(b"sec-fetch-mode")
        check_origin(headers.get(b"origin"), site, host, mode)
        scope["headers"] = drop_forwarded(scope["headers"], self._hosts)
        client = str((scope.get("client") or ("",))[0])
        rate = self._rate if method in _CHANGES else self._reading_rate
        wait = rate.wait(client)
        if wait:
            limit = f"{rate.rate:g} requests a second"
            raise HTTPError(429, f"too many requests; the limit is {limit}", retry_after=math.ceil(wait))
        if method not in _CHANGES:
            await self._app(scope, receive, send)
            return
        body = bytearray()
        try:
            await self._read(receive, body, headers.get(b"content-length"))
            set_context(scope, RequestContext(client, Deadline(self._limits.answer_seconds)))
            await self._app(scope, _replay(bytes(body), receive), send)
        finally:
            self._held.give_back(len(body))

    async def _read(self, receive: Receive, body: bytearray, announced: str | None) -> None:
        """Read the whole body into ``body``; its length is always what was taken from the budget."""
        most = self._limits.upload_bytes
        too_large = HTTPError(413, f"the request is larger than {most:,} bytes; send fewer or smaller images")
        if announced and announced.isdecimal() and int(announced) > most:
            raise too_large
        try:
            async with asyncio.timeout(self._limits.seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise HTTPError(400, "the client went away")
                    chunk = message.get("body", b"")
                    if len(body) + len(chunk) > most:
                        raise too_large
                    self._held.take(len(chunk))
                    body += chunk
                    more = message.get("more_body", False)
        except TimeoutError:
            raise HTTPError(
                408, f"the request took longer than {self._limits.seconds:g} s to arrive"
            ) from None

    async def _drain_body(self, scope: Scope, incoming: _Incoming) -> None:
        """Discard the rest of a rejected request, up to a limit: clients read no response while they send."""
        if any(key == b"expect" for key, _ in scope["headers"]):
            return  # the client waits for "100 Continue" before it sends the body
        left = _DRAIN_FACTOR * self._limits.upload_bytes
        try:
            async with asyncio.timeout(min(5.0, self._limits.seconds)):
                while left > 0 and not incoming.ended:
                    left -= len((await incoming()).get("body", b""))
        except TimeoutError:
            pass


class _Incoming:
    """``receive`` that remembers whether the whole request has arrived."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.ended = self.ended or not message.get("more_body", False)
        return message


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that first gives the body that was read already."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()  # tells the application when the client disconnects
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def is_page(path: str) -> bool:
    return path == PAGE or path.startswith(PAGE + "/")
