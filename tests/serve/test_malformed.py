"""A thousand malformed requests to a real server: none is answered with a 5xx, and it goes on as before."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.serve.conftest import TOKEN, server_process, shapes
from tests.serve.malformed import KINDS, requests

INCOMPLETE = {"wrong_length", "not_http", "odd_headers"}  # the server would wait for the rest


def answered(port: int, kind: str, request: bytes) -> int:
    """The status of the answer; 0 if the server closed the connection without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        try:
            connection.sendall(request)
            if kind in INCOMPLETE:
                connection.shutdown(socket.SHUT_WR)
            line = connection.makefile("rb").readline()
        except (ConnectionResetError, BrokenPipeError):
            return 0
    return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0


@pytest.mark.slow
def test_a_thousand_malformed_requests(model: Path) -> None:
    before = model.read_bytes()
    with server_process(model, "--rate", "0", token=TOKEN) as (port, _):
        failures: list[tuple[str, int, bytes]] = []
        statuses: dict[str, Counter[int]] = {kind.__name__: Counter() for kind in KINDS}
        for kind, request in requests(1000):
            status = answered(port, kind, request)
            statuses[kind][status] += 1
            if status >= 500:
                failures.append((kind, status, request[:600]))
        assert failures == []
        told = sum(count for found in statuses.values() for status, count in found.items() if status)
        assert told > 850, statuses  # answered, not just dropped
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert client.get("/healthz").json()["status"] == "ok"
            answer = client.post("/v1/predict", files=shapes("bar", 3)).json()
            assert [verdict["nearest"] for verdict in answer["images"]] == ["bar"] * 3
    assert model.read_bytes() == before
