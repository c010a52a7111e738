"""The batcher, the decoding threads and the serial worker: every request gets its own answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradmix.data import Unreadable
from gradmix.recognition import Predictions
from gradmix.serve import workers
from gradmix.serve.http import HTTPError
from gradmix.serve.limits import SMALL_REQUEST as SMALL
from gradmix.serve.limits import Deadline, Limits, PixelBudget, RequestContext
from gradmix.serve.live_model import BatchPredictions
from gradmix.serve.workers import Batcher, DecodePool, SerialWorker

PATIENCE = 120.0  # seconds until a test gives up; nothing here takes one, on a machine that has time for it


def first_pixels(images: Tensor) -> BatchPredictions:
    """Stand for a network whose label is the first pixel, which shows whose answer a client got."""
    label = images[:, 0, 0, 0].long()
    score = label.double()
    found = Predictions(label, label, score, score, score, tuple(map(str, range(256))))
    return BatchPredictions(found, label[:, None], score[:, None])


def marked(*marks: int, side: int = 2) -> Tensor:
    return torch.tensor(marks, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, side, side)


class Slow:
    """A network that waits for ``go``, and remembers its batches."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.started, self.go = threading.Semaphore(0), threading.Event()

    def __call__(self, images: Tensor) -> BatchPredictions:
        self.started.release()
        assert self.go.wait(PATIENCE)
        self.sizes.append(len(images))
        return first_pixels(images)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_client_gets_its_own_answer(threads: int) -> None:
    batcher = Batcher(first_pixels, threads, largest=16)
    failures: list[object] = []

    def client(number: int) -> None:
        for turn in range(30):
            marks = [(number * 31 + turn + i) % 256 for i in range(1 + number % 5)]
            got = batcher.submit(marked(*marks)).result(PATIENCE).found.label.tolist()
            if got != marks:
                failures.append((marks, got))

    threads = [threading.Thread(target=client, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert batcher.waiting == 0
    batcher.close()


def test_what_waits_becomes_one_batch() -> None:
    slow = Slow()
    batcher = Batcher(slow, largest=8)
    first = batcher.submit(marked(0))
    assert slow.started.acquire(timeout=PATIENCE)
    others = [batcher.submit(marked(i, i)) for i in range(1, 7)]
    slow.go.set()
    for future in (first, *others):
        future.result(PATIENCE)
    assert slow.sizes == [1, 8, 4]  # up to 8, requests whole
    batcher.close()


def test_a_single_request_waits_once_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(workers, "time", SimpleNamespace(sleep=waits.append))
    batcher = Batcher(first_pixels, linger=0.002)
    assert batcher.submit(marked(1)).result(PATIENCE).found.label.tolist() == [1]
    batcher.close()
    assert waits == [0.002]


def test_a_request_may_be_larger_than_a_batch() -> None:
    batcher = Batcher(first_pixels, largest=4)
    assert len(batcher.submit(marked(*range(10))).result(PATIENCE).rows()) == 10
    batcher.close()


def test_too_much_is_refused_at_once() -> None:
    slow = Slow()
    batcher = Batcher(slow, waiting=5)
    kept = [batcher.submit(marked(1, 2)), batcher.submit(marked(3, 4))]
    with pytest.raises(HTTPError) as refused:
        batcher.submit(marked(5, 6))
    assert refused.value.status == 503
    slow.go.set()
    assert [len(future.result(PATIENCE).rows()) for future in kept] == [2, 2]
    batcher.submit(marked(5, 6)).result(PATIENCE)  # there is room again
    batcher.close()


def test_errors_reach_the_callers_and_the_thread_goes_on() -> None:
    def fails_on_nine(images: Tensor) -> BatchPredictions:
        if bool((images == 9).any()):
            raise RuntimeError("nine")
        return first_pixels(images)

    batcher = Batcher(fails_on_nine)
    with pytest.raises(RuntimeError, match="nine"):
        batcher.submit(marked(9)).result(PATIENCE)
    assert batcher.submit(marked(1)).result(PATIENCE).found.label.tolist() == [1]
    assert batcher.waiting == 0
    batcher.close()


def test_sizes_do_not_mix() -> None:
    """While a model of another image size takes over, both may wait."""
    slow = Slow()
    batcher = Batcher(slow)
    futures = [batcher.submit(marked(0))]
    assert slow.started.acquire(timeout=PATIENCE)
    futures += [batcher.submit(marked(i, side=2 + i % 2)) for i in range(1, 5)]
    slow.go.set()
    assert [future.result(PATIENCE).found.label.tolist() for future in futures] == [[0], [1], [2], [3], [4]]
    batcher.close()


def test_closing_answers_what_was_taken_on() -> None:
    slow = Slow()
    batcher = Batcher(slow, largest=2)
    futures = [batcher.submit(marked(i, i)) for i in range(4)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    slow.go.set()
    assert [future.result(PATIENCE).found.label.tolist() for future in futures] == [[i, i] for i in range(4)]
    closing.join(PATIENCE)
    with pytest.raises(HTTPError, match="shutting down"):
        batcher.submit(marked(1))
    assert batcher.waiting == 0


def test_cancelled_requests_are_dropped_and_the_others_answered() -> None:
    network = Slow()
    batcher = Batcher(network, 1, linger=0)
    begun = batcher.submit(marked(1))
    assert network.started.acquire(timeout=10)
    waiting = [batcher.submit(marked(mark)) for mark in (2, 3, 4)]
    assert waiting[0].cancel()
    assert waiting[2].cancel()
    assert not begun.cancel()
    network.go.set()
    assert waiting[1].result(10).found.label.tolist() == [3]
    batcher.close()
    assert (network.sizes, batcher.waiting) == ([1, 1], 0)


# Decoding


class FakeDecoder:
    """Stands for a request with images of so many pixels."""

    def __init__(self, pixels: Sequence[int], decode: Callable[[int], object] = lambda i: None) -> None:
        self._ahead = list(pixels)
        self._decode = decode
        self.pixels = sum(pixels)

    @property
    def left(self) -> int:
        return len(self._ahead)

    @property
    def pixels_left(self) -> int:
        return sum(self._ahead)

    @property
    def next_pixels(self) -> int:
        return self._ahead[0] if self._ahead else 0

    def decode_next(self) -> None:
        self._decode(self._ahead.pop(0))

    def result(self) -> Any:
        return "images"


def context(client: str = "a", seconds: float = 60.0) -> RequestContext:
    return RequestContext(client, Deadline(seconds))


def submit(pool: DecodePool, decoder: Any, who: RequestContext | None = None) -> Future[Any]:
    return pool.submit(lambda: decoder, who or context())


def test_small_requests_overtake_large_ones() -> None:
    budget = PixelBudget(Limits())
    pool, busy, finish, order = DecodePool(2, budget), threading.Event(), threading.Event(), list[str]()

    def hold(pixels: int) -> None:
        busy.set()
        assert finish.wait(30)

    first = submit(pool, FakeDecoder([30 * SMALL] * 3, hold))
    assert busy.wait(30)
    larger = submit(pool, FakeDecoder([20 * SMALL] * 2, lambda p: order.append("larger")), context("b"))
    large = submit(pool, FakeDecoder([9 * SMALL] * 2, lambda p: order.append("large")), context("c"))
    small = submit(pool, FakeDecoder([100], lambda p: order.append("small")), context("d"))
    assert small.result(30) == "images"  # while the first large image is still being decoded
    assert order == ["small"]
    finish.set()
    assert [f.result(30) for f in (first, larger, large)] == ["images"] * 3
    assert order == ["small", "large", "large", "larger", "larger"]
    assert budget.taken == 0
    pool.close()


def test_waiting_makes_a_large_request_due() -> None:
    pool, busy, finish, order = DecodePool(2, PixelBudget(Limits())), threading.Event(), threading.Event(), []

    def hold(pixels: int) -> None:
        busy.set()
        assert finish.wait(30)

    submit(pool, FakeDecoder([30 * SMALL], hold))
    assert busy.wait(30)
    old = submit(pool, FakeDecoder([6 * SMALL], lambda p: order.append("old")), context("b"))
    time.sleep(0.3)
    new = submit(pool, FakeDecoder([5 * SMALL], lambda p: order.append("new")), context("c"))
    time.sleep(0.1)  # its headers have been read, and it waits
    finish.set()
    assert [f.result(30) for f in (old, new)] == ["images"] * 2
    assert order == ["old", "new"]
    pool.close()


def test_a_request_that_is_given_up_is_dropped() -> None:
    budget = PixelBudget(Limits())
    pool, busy, finish, decoded = DecodePool(2, budget), threading.Event(), threading.Event(), []

    def hold(pixels: int) -> None:
        decoded.append(pixels)
        busy.set()
        assert finish.wait(30)

    begun = submit(pool, FakeDecoder([30 * SMALL] * 5, hold))
    assert busy.wait(30)
    waiting = submit(pool, FakeDecoder([20 * SMALL] * 5, decoded.append), context("b"))
    with pytest.raises(HTTPError, match=r"no answer within 0\.2 s \(--deadline\)"):
        Deadline(0.2).wait_in_thread(waiting)
    with pytest.raises(HTTPError, match="no answer"):
        asyncio.run(Deadline(0.05).wait(begun))
    assert budget.taken == 0  # at once, not when its turn comes
    finish.set()
    pool.close()
    assert decoded == [30 * SMALL]  # what was being decoded was finished; the rest was never begun


def test_the_pool_checks_the_deadline_too() -> None:
    pool, budget = DecodePool(2, PixelBudget(Limits())), PixelBudget(Limits())
    late = RequestContext("a", Deadline(1.0, clock=iter([0.0, 2.0, 2.0]).__next__))
    with pytest.raises(HTTPError, match="no answer within 1 s") as found:
        submit(pool, FakeDecoder([100]), late).result(30)
    assert (found.value.status, found.value.retry_after) == (503, 5)
    pool.close()
    with pytest.raises(HTTPError, match="shutting down"):
        submit(pool, FakeDecoder([100]))
    assert budget.taken == 0


def test_any_mixture_of_requests_is_answered_and_gives_its_pixels_back() -> None:
    """Mix random sizes, failures, deadlines and cancellations: nothing hangs, leaks or ends a thread."""
    random = np.random.default_rng(0)
    limits = Limits(request_pixels=60 * SMALL, client_pixels=300 * SMALL, total_pixels=900 * SMALL)
    budget = PixelBudget(limits)
    pool = DecodePool(3, budget)

    def decode(pixels: int) -> None:
        time.sleep(0.0002)
        if pixels % 13 == 0:
            raise (RuntimeError, Unreadable, MemoryError, KeyboardInterrupt)[pixels % 4]("broken")

    futures = []
    for _ in range(600):
        largest = int(random.choice([1000, SMALL, 30 * SMALL]))
        pixels = [int(p) for p in random.integers(1, largest, size=random.integers(0, 6))]
        who = context(str(random.integers(4)), float(random.choice([0.0, 0.01, 60.0])))
        futures.append(submit(pool, FakeDecoder(pixels, decode), who))
        if random.random() < 0.2:
            futures[int(random.integers(len(futures)))].cancel()
    pool.close()
    assert all(future.done() for future in futures)
    assert (budget.taken, len(budget)) == (0, 0)
    outcomes = {"cancelled" if f.cancelled() else type(f.exception()).__name__ for f in futures}
    assert {"cancelled", "NoneType", "HTTPError", "RuntimeError", "KeyboardInterrupt"} <= outcomes
    with pytest.raises(CancelledError):
        next(f for f in futures if f.cancelled()).result()


# One job at a time


def test_a_serial_worker_is_bounded_and_finishes_its_work() -> None:
    worker, release = SerialWorker("test", most_waiting=2), threading.Event()
    first, second = worker.submit(release.wait), worker.submit(lambda: 2)
    with pytest.raises(HTTPError):
        worker.submit(lambda: 3)
    release.set()
    worker.close()
    assert (first.result(), second.result()) == (True, 2)


def test_cancelled_work_gives_its_room_back() -> None:
    worker, release = SerialWorker("test", most_waiting=2), threading.Event()
    worker.submit(release.wait)
    for _ in range(10):
        assert worker.submit(lambda: 2).cancel()
    release.set()
    worker.close()
