"""64 clients at once on a real server: every answer right, memory bounded, and stopping loses no answer."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx
import pytest

from gradmix.recognition import load
from tests.serve.conftest import TOKEN, resident_megabytes, server_process, shapes

CLIENTS = 64
# Megabytes by which a second, longer round of the same load may differ from the first: what the
# allocator keeps. More would be a leak.
MOST_GROWTH = 100.0


def storm(port: int, seconds: float) -> tuple[int, list[object]]:
    """Ask from 64 clients for so long; how many images were judged, and what went wrong."""
    until, judged, failures = time.monotonic() + seconds, [0] * CLIENTS, list[object]()

    def client(number: int) -> None:
        kind = ("bar", "disc", "square")[number % 3]
        sent = shapes(kind, 1 + number % 8, seed=number)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                while time.monotonic() < until:
                    answer = http.post("/v1/predict", files=sent)
                    verdicts = answer.json().get("images", [])
                    if answer.status_code != 200 or len(verdicts) != len(sent):
                        failures.append((answer.status_code, answer.text))
                        return
                    judged[number] += len(verdicts)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(judged), failures


@pytest.mark.slow
def test_64_clients(model: Path) -> None:
    with server_process(model, "--rate", "0") as (port, pid):
        judged, failures = storm(port, 5)
        warm = resident_megabytes(pid)
        more, more_failures = storm(port, 10)
        grown = resident_megabytes(pid) - warm
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert failures + more_failures == []
    assert judged > CLIENTS
    assert grown < MOST_GROWTH
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    images, batches = float(values["gradmix_batch_images_sum"]), float(values["gradmix_batch_images_count"])
    assert images == judged + more
    assert images / batches > 8  # batched: a request alone has 4.5 images on average
    assert float(values["gradmix_waiting_images"]) == 0


@pytest.mark.slow
def test_enrolling_while_64_clients_ask(model: Path) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with server_process(model, "--rate", "0", token=TOKEN) as (port, _):
        background: list[object] = []
        asking = threading.Thread(target=lambda: background.extend(storm(port, 6)[1]))
        asking.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, headers=bearer) as http:
            for i in range(3):
                sent = shapes("cross", 5, seed=i)
                taught = http.post("/v1/enroll", data={"name": f"cross {i}"}, files=sent)
                assert taught.status_code == 200, taught.text
        asking.join()
    assert background == []
    assert load(model).class_names[-3:] == ("cross 0", "cross 1", "cross 2")


@pytest.mark.slow
def test_stopping_answers_what_was_begun(model: Path) -> None:
    answers: list[int] = []

    def ask(port: int) -> None:
        address = f"http://127.0.0.1:{port}/v1/explain"
        answers.append(httpx.post(address, files=shapes("bar", 16), timeout=60).status_code)

    with server_process(model, "--rate", "0") as (port, _):
        threads = [threading.Thread(target=ask, args=(port,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)  # they are being worked on; now it is told to stop
    for thread in threads:
        thread.join()
    assert answers == [200] * 4
