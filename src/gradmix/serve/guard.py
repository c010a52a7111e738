"""What every request passes first: host and origin, rate, page routes, size; and every request is counted.

The body is read here and counted while it arrives, so that no code behind the guard gets a body that is too
large or too slow. The bytes of all bodies in memory are bounded together.

Of Gradio's many routes, those that the page does not need are closed, among them files by path, proxying to
other hosts and uploads to a temporary folder. The page sends its images inside its own events (see page.js),
and an event with a value that Gradio would treat as a file on the server or as a URL to fetch is rejected.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from .access import HostPolicy, check_origin, drop_forwarded
from .http import INTERNAL_ERROR, App, HTTPError, Message, Receive, Scope, Send, send_json
from .limits import Budget, Deadline, Limits, RateLimit, RequestContext, client_key, set_context

PAGE = "/ui"
_API = f"{PAGE}/gradio_api"
_EVENTS = (f"{_API}/queue/join", f"{_API}/run/predict")  # the second for the one event that does not queue
_STREAMS = re.compile(rf"{_API}/(queue/data|heartbeat/\w+)")
_OPEN = re.compile(
    rf"{PAGE}(/?|/config|/theme\.css|/manifest\.json|/favicon\.ico|/(assets|static|svelte)/[\w./@+-]+)"
    rf"|{_API}/(queue/join|run/predict|startup-events|info|app_id|theme\.css)"
)
_DEEPEST_NESTING = 12
_FIELDS: dict[str, tuple[type, ...]] = {
    "data": (list,),
    "session_hash": (str,),
    "event_data": (dict, list, str, int, float, type(None)),
    "trigger_id": (int, type(None)),
}
_LONGEST_ID = 64
_LONGEST_PATH = 200  # of the page's files; the system refuses longer names with an error of its own
_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_READING_FACTOR = 10  # a client may read so many times as often as it may ask; the page has many parts
_MOST_STREAMS = 64  # of one client
_DRAIN_FACTOR = 4  # of a rejected request, discard at most so many times the limit
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    # The browser blocks every request of the page to another host.
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
        b"script-src 'self' 'unsafe-inline' 'unsafe-eval'; connect-src 'self'; font-src 'self' data:; "
        b"worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'self'; form-action 'self'",
    ),
]


class RequestGuard:
    """ASGI middleware around the API and the page.

    ``count_request`` is called after every request, with its endpoint, status and seconds; paths that are
    not in ``endpoints`` are "other", or the page. ``events``: the numbers of the page's events, each with how
    many inputs it has.
    """

    def __init__(
        self,
        app: App,
        limits: Limits,
        hosts: HostPolicy,
        count_request: Callable[[str, int, float], None],
        endpoints: frozenset[str],
        events: Mapping[int, int] | None = None,
    ) -> None:
        self._app = app
        self._limits = limits
        self._hosts = hosts
        self._count_request = count_request
        self._endpoints = endpoints
        self._rate = RateLimit(limits.rate)
        self._reading_rate = RateLimit(_READING_FACTOR * limits.rate)
        self._events = events or {}
        self._streams_of: Counter[str] = Counter()
        self._held = Budget(limits.held_bytes)
        self._streams: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # not used by the API or the page
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._handle(scope, receive, send)

    def end_streams(self) -> None:
        """Cancel the streams of pages open in browsers; they would delay a shutdown without limit."""
        for task in self._streams:
            task.cancel()

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
        path, method = str(scope["path"]), str(scope["method"])
        host = headers.get(b"host")
        self._hosts.check(host)
        check_page_path(path)
        site, mode = headers.get(b"sec-fetch-site"), headers.get(b"sec-fetch-mode")
        check_origin(headers.get(b"origin"), site, host, mode)
        scope["headers"] = drop_forwarded(scope["headers"], self._hosts)
        client = str((scope.get("client") or ("",))[0])
        rate = self._rate if method in _CHANGES else self._reading_rate
        wait = rate.wait(client)
        if wait:
            limit = f"{rate.rate:g} requests a second"
            raise HTTPError(429, f"too many requests; the limit is {limit}", retry_after=math.ceil(wait))
        if is_page_stream(path):
            await self._stream(scope, receive, send, client_key(client))
            return
        if method not in _CHANGES:
            await self._app(scope, receive, send)
            return
        body = bytearray()
        try:
            await self._read(receive, body, headers.get(b"content-length"))
            check_page_body(path, body, self._events)
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

    async def _stream(self, scope: Scope, receive: Receive, send: Send, client: str) -> None:
        """Run a response that lasts as long as a page is open, until :meth:`end_streams`."""
        if self._streams_of[client] >= _MOST_STREAMS:
            raise HTTPError(429, f"more than {_MOST_STREAMS} open pages of one client", retry_after=5)
        self._streams_of[client] += 1
        task = asyncio.ensure_future(self._app(scope, receive, send))
        self._streams.add(task)
        try:
            await task
        except asyncio.CancelledError:
            task.cancel()
        finally:
            self._streams.discard(task)
            self._streams_of[client] -= 1
            if not self._streams_of[client]:
                del self._streams_of[client]


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


def is_page_stream(path: str) -> bool:
    """Return whether the response lasts as long as the page is open."""
    return bool(_STREAMS.fullmatch(path))


def check_page_path(path: str) -> None:
    """Raise 404 for the routes of Gradio that the page does not use; paths outside the page pass."""
    if is_page(path) and (
        len(path) > _LONGEST_PATH or ".." in path or not (_OPEN.fullmatch(path) or is_page_stream(path))
    ):
        raise HTTPError(404, "there is nothing here")


def check_page_body(path: str, body: bytes | bytearray, events: Mapping[int, int]) -> None:
    """Raise 400 or 422 for an event of the page that is not JSON, that names a file or a URL, or that the
    page does not have: Gradio would answer with a 500 and a traceback in the log."""
    if path not in _EVENTS:
        return
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPError(400, "the event is not JSON") from None
    if not isinstance(event, dict) or _names_a_file(event):
        raise HTTPError(422, "an event of the page names no files")
    if type(event.get("fn_index")) is not int or event["fn_index"] not in events:
        raise HTTPError(422, "the page has no such event")
    if isinstance(event.get("data"), list) and len(event["data"]) != events[event["fn_index"]]:
        raise HTTPError(422, "the event has not as many inputs as it needs")
    for field, allowed in _FIELDS.items():
        if not isinstance(event.get(field), allowed):
            raise HTTPError(422, f"the field '{field}' of an event is wrong")
    if any(len(str(event.get(name) or "")) > _LONGEST_ID for name in ("session_hash", "event_id")):
        raise HTTPError(422, "the session of an event is too long")


def _names_a_file(value: Any, depth: int = 0) -> bool:
    """Return whether a dict in it has "path" or "url", as Gradio marks files; or it is nested too deeply."""
    if depth > _DEEPEST_NESTING:
        return True
    if isinstance(value, dict):
        return not {"path", "url"}.isdisjoint(value) or any(
            _names_a_file(inner, depth + 1) for inner in value.values()
        )
    return isinstance(value, list) and any(_names_a_file(inner, depth + 1) for inner in value)
