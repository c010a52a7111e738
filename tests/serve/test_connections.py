"""Silent, slow and very many connections: closed in time, and never at the cost of other clients."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from socket import create_connection, socket

import pytest
import uvicorn

from gradmix.serve.connections import LONGEST_HEAD, ConnectionTable, make_protocol
from gradmix.serve.http import Receive, Scope, Send

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Connect = Callable[[], socket]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body; /slow waits for the event, /large sends 64 MB."""
    count, more = 0, True
    while more:
        message = await receive()
        count += len(message.get("body", b""))
        more = message.get("more_body", False)
    if scope["path"] == "/slow":
        await asyncio.to_thread(scope["state"]["go"].wait)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1024 if scope["path"] == "/large" else 0):
        await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
    await send({"type": "http.response.body", "body": str(count).encode()})


@contextmanager
def server(table: ConnectionTable, go: threading.Event | None = None) -> Iterator[Connect]:
    """A server in a thread, and how to connect to it; all connections are closed at the end."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await echo(scope | {"state": {"go": go}}, receive, send)

    config = uvicorn.Config(
        app, port=0, http=make_protocol(table), lifespan="off", ws="none", log_level="error", access_log=False
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        thread.join(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    with ExitStack() as stack:

        def connect() -> socket:
            made = stack.enter_context(create_connection(("127.0.0.1", port), timeout=60))
            return made

        try:
            yield connect
        finally:
            if go is not None:
                go.set()
            running.should_exit = True
    thread.join()


def read_all(connection: socket) -> bytes:
    """What comes until the server closes the connection."""
    content = b""
    try:
        while part := connection.recv(65536):
            content += part
    except ConnectionResetError:
        pass
    return content


def error_of(content: bytes) -> tuple[int, str]:
    head, _, body = content.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def test_silence_and_half_a_header_end() -> None:
    with server(ConnectionTable(seconds=0.3)) as connect:
        silent, half, between = connect(), connect(), connect()
        half.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        between.sendall(GET + b"GET /")  # half of the second request
        assert read_all(silent) == b""
        assert error_of(read_all(half)) == (408, "the headers took longer than 0.3 s to arrive")
        first, _, second = read_all(between).partition(b"HTTP/1.1 408")
        assert first.startswith(b"HTTP/1.1 200")
        assert second


def test_headers_have_a_greatest_length() -> None:
    with server(ConnectionTable()) as connect:
        for head in (b"GET / HTTP/1.1\r\nX: " + b"x" * LONGEST_HEAD, b"GET /" + b"x" * 2 * LONGEST_HEAD):
            for end in (b"", b"\r\n\r\n" if b"X:" in head else b" HTTP/1.1\r\n\r\n"):
                long = connect()
                long.sendall(head + end)
                content = read_all(long)
                # Where much is unread, the system may lose the answer with the connection.
                assert content == b"" or error_of(content)[0] == 431
        odd = connect()
        odd.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert error_of(read_all(odd)) == (400, "this is not HTTP")


def test_a_client_that_does_not_read_is_cut_off() -> None:
    with server(table := ConnectionTable(seconds=0.3)) as connect:
        lazy = connect()
        lazy.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        while not table.count:
            pass
        while table.count:  # its memory is free again, though it has not closed
            pass
        assert len(read_all(lazy)) < 64 * 2**20


def test_idle_connections_of_one_client_make_room() -> None:
    with server(table := ConnectionTable(most=20, per_client=8, seconds=60)) as connect:
        many = [connect() for _ in range(40)]
        honest = connect()
        honest.sendall(GET)
        assert honest.recv(100).startswith(b"HTTP/1.1 200")
        assert table.count <= 8
        assert read_all(many[0]) == b""  # the one that was idle for longest


def test_a_connection_in_work_never_makes_room() -> None:
    go = threading.Event()
    with server(table := ConnectionTable(per_client=3, seconds=60), go) as connect:
        working = [connect() for _ in range(3)]
        for connection in working:
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while sum(not one.idle for one in list(table._of.get("127.0.0.1", {}))) < 3:
            pass
        assert error_of(read_all(connect())) == (503, "too many connections; try again in a moment")
        go.set()
        assert all(read_all(connection).startswith(b"HTTP/1.1 200") for connection in working)
        late = connect()
        late.sendall(GET)
        assert late.recv(100).startswith(b"HTTP/1.1 200")


def test_where_all_are_taken_the_client_with_most_makes_room() -> None:
    class Connection:
        idle = True

        def __init__(self) -> None:
            self.transport = self

        def abort(self) -> None:
            self.closed = True

    table = ConnectionTable(most=4, per_client=3)
    greedy, honest, new = [Connection() for _ in range(3)], Connection(), Connection()
    for one in greedy:
        assert table.enter("a", one)  # type: ignore[arg-type]
    assert table.enter("b", honest)  # type: ignore[arg-type]
    table.touch("a", greedy[0])  # type: ignore[arg-type]
    assert table.enter("c", new)  # type: ignore[arg-type]
    assert [hasattr(one, "closed") for one in (*greedy, honest)] == [False, True, False, False]
    assert table.count == 4


@pytest.mark.parametrize("chunk", [1, 7])
def test_a_body_in_very_small_chunks_is_the_same_body(chunk: int) -> None:
    count = 20_000
    with server(ConnectionTable()) as connect:
        sender = connect()
        sender.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        sender.sendall(b"%x\r\n%s\r\n" % (chunk, b"x" * chunk) * count + b"0\r\n\r\n")
        assert str(count * chunk).encode() in read_all(sender)
