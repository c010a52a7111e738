"""The threads that do the work: decoding, the network in batches, and heavy work one job at a time.

Decoding: small requests never wait for large ones. The headers of a request are read first; then it is
accepted or rejected by its pixels. A small request is decoded in one step, a large one image by image, and
after each image the request with the earliest due time continues. The due time is the arrival plus the time
that the remaining pixels take, so small requests overtake large ones, but not without end. One thread never
decodes a large image.

Network: a batch is whatever waits when a worker is free, up to ``largest`` images. While the network is
busy the next batch collects, and a single request waits at most ``linger`` seconds for others.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from .http import HTTPError
from .limits import SMALL_REQUEST, Budget, PixelBudget, RequestContext
from .live_model import BatchPredictions
from .uploads import DecodedImages, UploadDecoder

T = TypeVar("T")
Predict = Callable[[Tensor], BatchPredictions]
LARGEST_BATCH = 128
LINGER = 0.004
_LARGE_IMAGE = 4_000_000  # pixels
_SECONDS_PER_PIXEL = 1e-7


class SerialWorker:
    """One thread for heavy work (explanations, changes of the model), so that predictions go on."""

    def __init__(self, name: str, most_waiting: int = 16) -> None:
        self._room = Budget(most_waiting)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue ``work``; raise 503 if too much is queued already."""
        self._room.take(1)

        def run() -> T:
            try:
                return work()
            finally:
                self._room.give_back(1)

        future = self._thread.submit(run)
        # Cancelled work is never run, so run() cannot release its room.
        future.add_done_callback(lambda done: self._room.give_back(1) if done.cancelled() else None)
        return future

    def close(self) -> None:
        """Finish the queued work, then end the thread."""
        self._thread.shutdown(wait=True)


class _ThreadPool:
    """Threads that wait for work until the pool is closed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # of the queue, or of _closed
        self._closed = False
        self._threads: list[threading.Thread] = []

    def _start(self, name: str, works: Sequence[Callable[[], None]]) -> None:
        self._threads = [
            threading.Thread(target=work, name=f"{name}-{i}", daemon=True) for i, work in enumerate(works)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def works(self) -> bool:
        """Return whether all threads run, or were ended on purpose."""
        return self._closed or all(thread.is_alive() for thread in self._threads)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise HTTPError(503, "the server is shutting down", retry_after=5)

    def close(self) -> None:
        """Finish the queued requests, then end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()


@dataclass(eq=False)
class _DecodeJob:
    read_headers: Callable[[], UploadDecoder]
    context: RequestContext
    arrived: float
    answer: Future[DecodedImages] = field(default_factory=Future)
    decoder: UploadDecoder | None = None
    taken: int = 0  # pixels of the budget

    @property
    def due(self) -> float:
        return self.arrived + (_SECONDS_PER_PIXEL * self.decoder.pixels_left if self.decoder else 0.0)

    @property
    def next_is_large(self) -> bool:
        return self.decoder is not None and self.decoder.next_pixels > _LARGE_IMAGE


class DecodePool(_ThreadPool):
    """Decoding threads, at least two, of which one takes only small images."""

    def __init__(self, threads: int, budget: PixelBudget) -> None:
        super().__init__()
        self._budget = budget
        self._small: list[tuple[float, int, _DecodeJob]] = []
        self._large: list[tuple[float, int, _DecodeJob]] = []
        self._order = itertools.count()
        self._unfinished = 0
        works = [functools.partial(self._work, takes_large=i > 0) for i in range(max(2, threads))]
        self._start("decode", works)

    def submit(
        self, read_headers: Callable[[], UploadDecoder], context: RequestContext
    ) -> Future[DecodedImages]:
        """Queue a request; ``read_headers`` is called in a thread of the pool."""
        job = _DecodeJob(read_headers, context, time.monotonic())
        with self._changed:
            self._refuse_if_closed()
            self._unfinished += 1
            self._put(job)
        job.answer.add_done_callback(lambda _: self._release(job))  # also when the caller cancels it
        return job.answer

    def _work(self, takes_large: bool) -> None:
        while (job := self._take(takes_large)) is not None:
            if self._advance(job):
                with self._changed:
                    self._put(job)
            else:
                with self._changed:
                    self._unfinished -= 1
                    self._changed.notify_all()

    def _put(self, job: _DecodeJob) -> None:
        heapq.heappush(self._large if job.next_is_large else self._small, (job.due, next(self._order), job))
        self._changed.notify_all()

    def _take(self, takes_large: bool) -> _DecodeJob | None:
        """Wait for the job that is due first; return None when the pool is closed and all is done."""
        with self._changed:
            while True:
                queues = [queue for queue in (self._small, self._large if takes_large else []) if queue]
                if queues:
                    return heapq.heappop(min(queues, key=lambda queue: queue[0][:2]))[2]
                if self._closed and not self._unfinished:
                    return None
                self._changed.wait()

    def _advance(self, job: _DecodeJob) -> bool:
        """Do the next step of a request; return whether there is more to do."""
        if job.answer.cancelled():
            return False
        images, failure = None, None
        try:
            job.context.deadline.check()
            if job.decoder is None:
                job.decoder = job.read_headers()
                self._budget.take(job.context.client, job.decoder.pixels)
                job.taken = job.decoder.pixels
                if job.decoder.pixels <= SMALL_REQUEST:
                    while job.decoder.left:
                        job.decoder.decode_next()
            else:
                job.decoder.decode_next()
            if job.decoder.left:
                if job.answer.cancelled():
                    self._release(job)
                    return False
                return True
            images = job.decoder.result()
        except BaseException as error:  # any error goes to the caller and must not end the thread
            failure = error
        self._release(job)  # before the answer is set, so that its receiver finds the budget free
        if job.answer.set_running_or_notify_cancel():
            if images is None:
                job.answer.set_exception(failure)
            else:
                job.answer.set_result(images)
        return False

    def _release(self, job: _DecodeJob) -> None:
        with self._changed:
            taken, job.taken = job.taken, 0
        if taken:
            self._budget.give_back(job.context.client, taken)


@dataclass(eq=False)
class _PredictJob:
    images: Tensor
    answer: Future[BatchPredictions] = field(default_factory=Future)


class Batcher(_ThreadPool):
    """Calls ``predict`` with batches, in ``workers`` threads; ``on_batch`` gets the size of each batch.

    At most ``waiting`` images are queued; more raise 503 at once rather than after a long wait.
    """

    def __init__(
        self,
        predict: Predict,
        workers: int = 1,
        waiting: int = 2048,
        largest: int = LARGEST_BATCH,
        linger: float = LINGER,
        on_batch: Callable[[int], None] = lambda images: None,
    ) -> None:
        super().__init__()
        self._predict = predict
        self._largest = largest
        self._linger = linger
        self._on_batch = on_batch
        self._room = Budget(waiting)
        self._queue: deque[_PredictJob] = deque()
        self._start("network", [self._work] * workers)

    @property
    def waiting(self) -> int:
        """Return the number of images that were accepted and are not answered yet."""
        return self._room.taken

    def submit(self, images: Tensor) -> Future[BatchPredictions]:
        """Queue images (n, C, S, S); the future has their predictions, in order."""
        job = _PredictJob(images)
        with self._changed:
            self._refuse_if_closed()
            self._room.take(len(images))
            self._queue.append(job)
            self._changed.notify()
        return job.answer

    def _work(self) -> None:
        while not (self._closed and not self._queue):
            if batch := self._next_batch():  # empty, if another worker was quicker
                self._answer(batch)

    def _answer(self, batch: list[_PredictJob]) -> None:
        sizes = [len(job.images) for job in batch]
        predictions, failure = None, None
        try:
            images = torch.cat([job.images for job in batch]) if len(batch) > 1 else batch[0].images
            self._on_batch(len(images))
            predictions = self._predict(images)
        except BaseException as error:  # any error goes to the callers and must not end the thread
            failure = error
        self._room.give_back(sum(sizes))  # before the answers are set, so that their receivers find room
        first = 0
        for job, size in zip(batch, sizes, strict=True):
            if predictions is None:
                job.answer.set_exception(failure)
            else:
                job.answer.set_result(predictions.part(first, first + size))
            first += size

    def _next_batch(self) -> list[_PredictJob]:
        """Wait for a request, then up to ``linger`` seconds for others."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            waiting = sum(len(job.images) for job in self._queue)
        if 0 < waiting < self._largest and not self._closed:
            # One sleep: waking up for every request that arrives would cost more than batching saves.
            time.sleep(self._linger)
        with self._changed:
            batch: list[_PredictJob] = []
            count = 0
            while self._queue and (not batch or self._fits(batch[0], count)):
                job = self._queue.popleft()
                if not job.answer.set_running_or_notify_cancel():  # its caller has cancelled it
                    self._room.give_back(len(job.images))
                    continue
                batch.append(job)
                count += len(job.images)
            return batch

    def _fits(self, first: _PredictJob, count: int) -> bool:
        """Return whether the next request may join. Image sizes differ while a model replaces another."""
        following = self._queue[0].images
        return count + len(following) <= self._largest and following.shape[1:] == first.images.shape[1:]
