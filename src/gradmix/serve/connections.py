"""Connections: how many one client may hold, and how long one may be silent.

uvicorn closes a connection that is silent between two requests, and counts connections in all. It waits
without end for the first request, and for the rest of headers that have begun, so a thousand idle connections
of one client would shut everybody out. Here headers have a deadline and a greatest length, a client
that does not read its response is cut off, and where there are too many connections the longest idle one of
the client with the most makes room.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .http import HTTPError
from .limits import client_key

LONGEST_HEAD = 64 * 1024  # bytes of a request's first line and headers
_TOO_LONG = HTTPError(431, f"the headers are longer than {LONGEST_HEAD:,} bytes")


class ConnectionTable:
    """The open connections by client; ``most`` in all and ``per_client``.

    ``seconds``: within which the headers of a request must arrive, and a client must go on reading.
    """

    def __init__(self, most: int = 1024, per_client: int = 256, seconds: float = 10.0) -> None:
        self.most = most
        self.per_client = per_client
        self.seconds = seconds
        self._of: defaultdict[str, dict[GuardedProtocol, None]] = defaultdict(dict)  # oldest first
        self.count = 0

    def enter(self, client: str, connection: GuardedProtocol) -> bool:
        """Count a connection; return False if there is no room, nor an idle one that could make it."""
        own = self._of.get(client, {})
        if len(own) >= self.per_client and not self._close_idle(client):
            return False
        if self.count >= self.most:
            crowded = max(self._of, key=lambda key: len(self._of[key]))
            if not self._close_idle(crowded):
                return False
        self._of[client][connection] = None
        self.count += 1
        return True

    def leave(self, client: str, connection: GuardedProtocol) -> None:
        """Forget a connection; one that is not known is nothing to forget."""
        own = self._of.get(client, {})
        if connection in own:
            del own[connection]
            self.count -= 1
            if not own:
                del self._of[client]

    def touch(self, client: str, connection: GuardedProtocol) -> None:
        """Note that a connection was used: it is now the one that was idle for the shortest time."""
        own = self._of.get(client, {})
        if connection in own:
            del own[connection]
            own[connection] = None

    def _close_idle(self, client: str) -> bool:
        idle = next((one for one in self._of[client] if one.idle), None)
        if idle is None:
            return False
        self.leave(client, idle)
        idle.transport.abort()
        return True


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with the limits of a :class:`ConnectionTable`.

    Its parser is that of httptools: h11 needs 0.8 s for 200,000 chunks of one byte, during which the event
    loop stands still; httptools 0.01 s.
    """

    table: ConnectionTable

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._key = client_key(self.client[0] if self.client else "")
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0  # since the end of the last request
        self._begun = self._in_body = False
        self._error = HTTPError(400, "this is not HTTP")
        if self.table.enter(self._key, self):
            self._await_head()
        else:
            self._refuse(HTTPError(503, "too many connections; try again in a moment", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer = _cancel(self._head_timer)
        self._write_timer = _cancel(self._write_timer)
        self.table.leave(self._key, self)
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """Return whether no request of it is in work."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.idle and self._head_timer is None:
            self._await_head()
        if not self._in_body:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > LONGEST_HEAD and not self._in_body and not self.transport.is_closing():
            self._refuse(_TOO_LONG)

    def on_message_begin(self) -> None:
        self._begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_timer = _cancel(self._head_timer)
        self._head_bytes, self._begun, self._in_body = 0, False, True
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > LONGEST_HEAD:
            self._error = _TOO_LONG
            raise ValueError("too long")  # which ends the parser, and then send_400_response is called
        self.table.touch(self._key, self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._begun and self.idle and self._head_timer is None:  # half of the next request is there
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._error)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_timer = _cancel(self._write_timer)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.table.seconds, self._close_late)

    def _await_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() < unread:  # slow, but it does read
                self._await_reader()
            else:
                self.transport.abort()

        self._write_timer = self.loop.call_later(self.table.seconds, check)

    def _close_late(self) -> None:
        self._head_timer = None
        if self.idle and self._begun:
            self._refuse(HTTPError(408, f"the headers took longer than {self.table.seconds:g} s to arrive"))
        elif self.idle:
            self.transport.close()

    def _refuse(self, error: HTTPError) -> None:
        """Answer outside of a request, and close."""
        if self.transport.is_closing():
            return
        fields = {"content-type": "application/json", "content-length": str(len(error.body)), **error.headers}
        lines = [f"HTTP/1.1 {error.status} refused", *(f"{name}: {value}" for name, value in fields.items())]
        self.transport.write("\r\n".join([*lines, "connection: close", "", ""]).encode() + error.body)
        self.transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel the timer, if there is one; return what stands in its place: None."""
    if timer is not None:
        timer.cancel()
    return None


def make_protocol(table: ConnectionTable) -> type[asyncio.Protocol]:
    """Return the protocol class for uvicorn whose connections are counted in ``table``."""
    return type("TableProtocol", (GuardedProtocol,), {"table": table})
