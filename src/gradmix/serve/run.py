"""Run the server until it is told to stop, then let it finish what it has begun."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
import uvicorn

from ..cores import cores
from ..errors import UserError
from .app import create_app
from .desk import Desk, default_workers
from .gate import Gate
from .origin import is_loopback

_SECONDS_TO_FINISH = 30
_MOST_CONNECTIONS = 1024


def serve(desk: Desk, host: str = "127.0.0.1", port: int = 7860, allow_hosts: Collection[str] = ()) -> None:
    """Listen on ``host``:``port`` (0: a free port) until SIGINT or SIGTERM. Prints where, once it answers."""
    # Each of the network's workers computes with its share of the cores.
    torch.set_num_threads(max(1, cores() // default_workers()))
    _, gate = create_app(desk, host, allow_hosts)
    config = uvicorn.Config(
        gate,
        host=host,
        port=port,
        log_level="error",  # one line a malformed request would let any client fill the log
        access_log=False,
        proxy_headers=False,  # who a client is must not be the client's own word
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_SECONDS_TO_FINISH,
        ws="none",
        lifespan="on",
    )
    listening = _listen(host, port)
    server = _Server(config, gate, f"{_shown(host)}:{listening.getsockname()[1]}", desk)
    asyncio.run(server.serve(sockets=[listening]))


class _Server(uvicorn.Server):
    """uvicorn's, ending quietly on a signal: it was asked to stop, and did."""

    def __init__(self, config: uvicorn.Config, gate: Gate, address: str, desk: Desk) -> None:
        super().__init__(config)
        self._gate = gate
        self._address = address
        self._desk = desk

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            many = len(self._desk.live.current.recognizer.class_names)
            print(f"serving {self._desk.live.file} ({many} classes) at http://{self._address}/", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gate.end_streams()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            if self.should_exit:  # asked twice: now. Models are replaced whole, so nothing is half-written.
                os._exit(128 + number)
            self.should_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def warn_if_open(host: str, token: str | None) -> None:
    """One line, where anybody on the network could change the model."""
    if not is_loopback(host) and token is None:
        print(
            f"gradmix: listening on {host} without a token: whoever reaches this machine can change the "
            "model; set one with --token-file or $GRADMIX_TOKEN",
            file=sys.stderr,
            flush=True,
        )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen on {host}:{port}: {reason}; choose another --host or --port"
        ) from error
    return listening


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
