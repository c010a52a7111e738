"""Requests of many clients through the network together.

A batch is whatever waits when a worker is free, up to ``largest`` images: while the network is busy the next
batch grows by itself, and a lone request waits for nobody longer than ``linger`` seconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .limits import Budget
from .refusal import Refusal
from .verdicts import Verdicts

Judge = Callable[[Tensor], Verdicts]
LARGEST = 128
LINGER = 0.004


@dataclass(eq=False)
class _Waiting:
    images: Tensor
    answer: Future[Verdicts] = field(default_factory=Future)


class Batcher:
    """``judge`` is called with batches, by ``workers`` threads at once; ``seen`` hears of each batch's size.

    At most ``waiting`` images are queued; more are refused with 503 at once, rather than after a long time.
    """

    def __init__(
        self,
        judge: Judge,
        workers: int = 1,
        waiting: int = 2048,
        largest: int = LARGEST,
        linger: float = LINGER,
        seen: Callable[[int], None] = lambda images: None,
    ) -> None:
        self._judge = judge
        self._largest = largest
        self._linger = linger
        self._seen = seen
        self._room = Budget(waiting)
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"network-{i}", daemon=True) for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Images that were taken on and are not answered yet."""
        return self._room.taken

    def submit(self, images: Tensor) -> Future[Verdicts]:
        """Queue images (n, C, S, S); the future has the verdicts on them, in order."""
        self._room.take(len(images))
        request = _Waiting(images)
        with self._changed:
            if self._closed:
                self._room.give_back(len(images))
                raise Refusal(503, "the server is shutting down", retry_after=5)
            self._queue.append(request)
            self._changed.notify()
        return request.answer

    def close(self) -> None:
        """Answer what was taken on, then end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while not (self._closed and not self._queue):
            if batch := self._next_batch():  # none, if another worker was quicker
                self._answer(batch)

    def _answer(self, batch: list[_Waiting]) -> None:
        sizes = [len(request.images) for request in batch]
        verdicts, failure = None, None
        try:
            images = torch.cat([request.images for request in batch]) if len(batch) > 1 else batch[0].images
            self._seen(len(images))
            verdicts = self._judge(images)
        except BaseException as error:  # whatever it is, it must reach those who wait, not end the thread
            failure = error
        self._room.give_back(sum(sizes))  # before anybody hears: the one who does finds the room free
        first = 0
        for request, size in zip(batch, sizes, strict=True):
            if verdicts is None:
                request.answer.set_exception(failure)
            else:
                request.answer.set_result(verdicts.part(first, first + size))
            first += size

    def _next_batch(self) -> list[_Waiting]:
        """Wait for work, and a moment for company."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            waiting = sum(len(request.images) for request in self._queue)
        if 0 < waiting < self._largest and not self._closed:
            # One sleep: being woken by every request that comes in would cost more than its company saves.
            time.sleep(self._linger)
        with self._changed:
            batch: list[_Waiting] = []
            count = 0
            while self._queue and (not batch or self._fits(batch[0], count)):
                batch.append(self._queue.popleft())
                count += len(batch[-1].images)
            return batch

    def _fits(self, first: _Waiting, count: int) -> bool:
        """Whether the next request may join. Two image sizes may wait while a model replaces another."""
        following = self._queue[0].images
        return count + len(following) <= self._largest and following.shape[1:] == first.images.shape[1:]
