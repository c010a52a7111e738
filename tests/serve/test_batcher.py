"""Many requests, few batches; everyone gets his own answer."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import Tensor

from gradmix.recognition import Predictions
from gradmix.serve.batcher import Batcher
from gradmix.serve.refusal import Refusal
from gradmix.serve.verdicts import Verdicts


def first_pixels(images: Tensor) -> Verdicts:
    """A "network" whose label is the first pixel: who got whose answer can be seen."""
    label = images[:, 0, 0, 0].long()
    score = label.double()
    found = Predictions(label, label, score, tuple(map(str, range(256))))
    return Verdicts(found, score, label[:, None], score[:, None])


def marked(*marks: int, side: int = 2) -> Tensor:
    return torch.tensor(marks, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, side, side)


class Slow:
    """A network that waits for a sign, and remembers its batches."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.started, self.go = threading.Semaphore(0), threading.Event()

    def __call__(self, images: Tensor) -> Verdicts:
        self.started.release()
        assert self.go.wait(10)
        self.sizes.append(len(images))
        return first_pixels(images)


@pytest.mark.parametrize("workers", [1, 2])
def test_everyone_gets_his_own_answer(workers: int) -> None:
    batcher = Batcher(first_pixels, workers, largest=16)
    failures: list[object] = []

    def client(number: int) -> None:
        for turn in range(30):
            marks = [(number * 31 + turn + i) % 256 for i in range(1 + number % 5)]
            got = batcher.submit(marked(*marks)).result(10).found.label.tolist()
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
    assert slow.started.acquire(timeout=10)
    others = [batcher.submit(marked(i, i)) for i in range(1, 7)]
    slow.go.set()
    for future in (first, *others):
        future.result(10)
    assert slow.sizes == [1, 8, 4]  # up to 8, requests whole
    batcher.close()


def test_a_lone_request_does_not_wait_long() -> None:
    batcher = Batcher(first_pixels, linger=0.002)
    started = time.monotonic()
    batcher.submit(marked(1)).result(10)
    assert time.monotonic() - started < 1
    batcher.close()


def test_a_request_may_be_larger_than_a_batch() -> None:
    batcher = Batcher(first_pixels, largest=4)
    assert len(batcher.submit(marked(*range(10))).result(10).rows()) == 10
    batcher.close()


def test_too_much_is_refused_at_once() -> None:
    slow = Slow()
    batcher = Batcher(slow, waiting=5)
    kept = [batcher.submit(marked(1, 2)), batcher.submit(marked(3, 4))]
    with pytest.raises(Refusal) as refused:
        batcher.submit(marked(5, 6))
    assert refused.value.status == 503
    slow.go.set()
    assert [len(future.result(10).rows()) for future in kept] == [2, 2]
    batcher.submit(marked(5, 6)).result(10)  # there is room again
    batcher.close()


def test_failures_reach_those_who_wait_and_the_thread_lives() -> None:
    def fails_on_nine(images: Tensor) -> Verdicts:
        if bool((images == 9).any()):
            raise RuntimeError("nine")
        return first_pixels(images)

    batcher = Batcher(fails_on_nine)
    with pytest.raises(RuntimeError, match="nine"):
        batcher.submit(marked(9)).result(10)
    assert batcher.submit(marked(1)).result(10).found.label.tolist() == [1]
    assert batcher.waiting == 0
    batcher.close()


def test_sizes_do_not_mix() -> None:
    """While a model of another image size takes over, both may wait."""
    slow = Slow()
    batcher = Batcher(slow)
    futures = [batcher.submit(marked(0))]
    assert slow.started.acquire(timeout=10)
    futures += [batcher.submit(marked(i, side=2 + i % 2)) for i in range(1, 5)]
    slow.go.set()
    assert [future.result(10).found.label.tolist() for future in futures] == [[0], [1], [2], [3], [4]]
    batcher.close()


def test_closing_answers_what_was_taken_on() -> None:
    slow = Slow()
    batcher = Batcher(slow, largest=2)
    futures = [batcher.submit(marked(i, i)) for i in range(4)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    slow.go.set()
    assert [future.result(10).found.label.tolist() for future in futures] == [[i, i] for i in range(4)]
    closing.join(10)
    with pytest.raises(Refusal, match="shutting down"):
        batcher.submit(marked(1))
    assert batcher.waiting == 0
