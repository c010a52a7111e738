"""Work that is done one at a time, with a bounded number of people waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from .limits import Budget

T = TypeVar("T")


class Lane:
    """A thread of its own for heavy work (explanations, changes of the model), so that naming goes on."""

    def __init__(self, name: str, most_waiting: int = 16) -> None:
        self._room = Budget(most_waiting)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue ``work``; refused with 503 if too much is queued already."""
        self._room.take(1)

        def run() -> T:
            try:
                return work()
            finally:
                self._room.give_back(1)

        return self._thread.submit(run)

    def close(self) -> None:
        """Finish what was taken on."""
        self._thread.shutdown(wait=True)
