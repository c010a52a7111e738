"""Attacks on processes: SIGKILL at any moment, a full disk, malformed requests, slow and many clients."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from gradmix.recognition import load
from tests.serve.conftest import server_process, shapes
from tests.serve.malformed import requests
from tests.torture.on_files import Files
from tests.training.tiny import CLASSES, FIELDS

_HONEST, _ASKED = 4, 12
_IDLE, _HALF = 300, 30
_SECONDS = 600


def gradmix(*words: object, before: Callable[[], object] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gradmix", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before
    )


def ended(process: subprocess.Popen[str], allowed: tuple[int, ...]) -> str:
    """Return what was wrong about the end of a process, or an empty text."""
    _, err = process.communicate(timeout=_SECONDS)
    if process.returncode not in allowed or "Traceback" in err:
        return f"ended with {process.returncode}: {err[-300:]}"
    return ""


def kill_soon(process: subprocess.Popen[str], rng: random.Random) -> None:
    """Kill it after up to as long as such a command takes, if it is not done by then."""
    try:
        process.wait(rng.uniform(0.5, 12.0))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate(timeout=_SECONDS)


def killed_training(files: Files, rng: random.Random) -> str:
    """A training that is killed and resumed ends in the same weights as one that is not."""
    fields = {**FIELDS, "method": "ce", "stem": "half", "max_steps": 30, "checkpoint_minutes": 0.001}
    del fields["layers"]
    options = [word for name, value in fields.items() for word in (f"--{name.replace('_', '-')}", value)]
    whole = files.folder / "whole"
    if not whole.exists():
        problem = ended(gradmix("train", files.photos, "--out", whole, *options), (0,))
        if problem:
            return problem
    out = files.folder / "killed"
    shutil.rmtree(out, ignore_errors=True)
    kill_soon(gradmix("train", files.photos, "--out", out, *options), rng)
    again = ["--resume", out] if (out / "recipe.yaml").exists() else [files.photos, "--out", out, *options]
    if problem := ended(gradmix("train", *again), (0,)):
        return problem
    ours, other = load(out).network.state_dict(), load(whole).network.state_dict()
    return "" if all(ours[name].equal(other[name]) for name in other) else "other weights"


def killed_enroll(files: Files, rng: random.Random) -> str:
    copy = Path(shutil.copy(files.model, files.folder / "enrolled.safetensors"))
    kill_soon(gradmix("enroll", copy, files.photos / "disc", "--name", "round"), rng)
    names = load(copy).class_names
    return "" if names in (CLASSES, (*CLASSES, "round")) else str(names)


def killed_predict(files: Files, rng: random.Random) -> str:
    """Answers that were interrupted and resumed are the same bytes."""
    whole, out = files.folder / "whole.csv", files.folder / "killed.csv"
    if not whole.exists() and (
        problem := ended(gradmix("predict", files.model, files.photos, "--out", whole), (0,))
    ):
        return problem
    for left in files.folder.glob("*killed.csv*"):
        left.unlink()
    kill_soon(gradmix("predict", files.model, files.photos, "--out", out), rng)
    if not out.exists() and (
        problem := ended(gradmix("predict", files.model, files.photos, "--out", out), (0,))
    ):
        return problem
    return "" if out.read_bytes() == whole.read_bytes() else "other answers"


def full_disk(files: Files, rng: random.Random) -> str:
    """Files may have so many bytes and no more: one line, exit code 2, and the old model."""
    copy = Path(shutil.copy(files.model, files.folder / "full.safetensors"))
    most = rng.randrange(1, copy.stat().st_size)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    words = ("enroll", copy, files.photos / "disc", "--name", "round")
    if problem := ended(gradmix(*words, before=limit), (2,)):
        return problem
    return "" if load(copy).class_names == CLASSES else "another model"


def killed_server(files: Files, rng: random.Random) -> str:
    """A server that is killed while it is taught leaves a model that opens, with its own classes."""
    copy = Path(shutil.copy(files.model, files.folder / "killed.safetensors"))
    process = gradmix("serve", copy, "--port", "0", "--rate", "0")
    assert process.stdout is not None
    port = int(process.stdout.readline().rsplit(":", 1)[1].strip().strip("/"))
    killer = threading.Timer(rng.uniform(0.0, 2.0), process.kill)
    killer.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            for i in range(1000):
                client.post("/v1/enroll", data={"name": f"new {i}"}, files=shapes("cross", 2, i))
    except httpx.HTTPError:
        pass
    killer.join()
    process.communicate(timeout=_SECONDS)
    names = load(copy).class_names
    return "" if names[:3] == CLASSES else str(names)


def malformed_requests(files: Files, rng: random.Random) -> str:
    """Two hundred malformed requests: none gets a 5xx, and the server is well."""
    with server_process(files.model, "--rate", "0", token="correct-horse") as (port, _):
        for kind, request in requests(200, rng.randrange(2**32)):
            with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
                try:
                    connection.sendall(request)
                    connection.shutdown(socket.SHUT_WR)
                    line = connection.makefile("rb").readline()
                except (ConnectionResetError, BrokenPipeError, OSError):
                    continue
            if line.startswith(b"HTTP/1.1 5"):
                return f"{kind}: {line!r} for {request[:200]!r}"
        status = httpx.get(f"http://127.0.0.1:{port}/readyz").json()["status"]
        return "" if status == "ok" else str(status)


def hostile_clients(files: Files, rng: random.Random) -> str:
    """Beside silent, slow and half-sent connections, honest clients wait at most five times as long."""
    with server_process(files.model, "--rate", "0") as (port, _):
        ask(port)  # the first answers are slower
        alone = ask(port)
        hostile = [socket.create_connection(("127.0.0.1", port)) for _ in range(_IDLE)]
        for one in hostile[:_HALF]:
            with suppress(OSError):  # it may have made room already
                one.sendall(rng.choice([b"GET / HT", b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "]))
        beside = ask(port)
        for one in hostile:
            one.close()
    bound = 5 * max(alone) + 0.5
    return "" if max(beside) <= bound else f"slowest {max(beside):.2f} s, alone {max(alone):.2f} s"


def ask(port: int) -> list[float]:
    """Return the seconds of all requests of a few honest clients."""
    seconds: list[float] = []

    def client(number: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_SECONDS) as http:
            for i in range(_ASKED):
                started = time.perf_counter()
                answer = http.post("/v1/predict", files=shapes("bar", 2, number * 100 + i))
                seconds.append(time.perf_counter() - started if answer.status_code == 200 else float("inf"))

    threads = [threading.Thread(target=client, args=(n,)) for n in range(_HONEST)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds if len(seconds) == _HONEST * _ASKED else [float("inf")]


os.environ.setdefault("OMP_NUM_THREADS", "1")
