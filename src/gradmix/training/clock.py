"""How long a training took, accumulated over restarts: wall time, and processor time of all cores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Starts when made. Core-minutes tell the cost even where other programs share the machine."""

    def __init__(self) -> None:
        self._minutes_before = self._core_minutes_before = 0.0
        self._wall, self._cores = time.monotonic(), time.process_time()

    def resume_from(self, minutes: float, core_minutes: float) -> None:
        """Start from what was accumulated before a restart."""
        self._minutes_before, self._core_minutes_before = minutes, core_minutes

    @property
    def minutes(self) -> float:
        return self._minutes_before + (time.monotonic() - self._wall) / 60

    @property
    def core_minutes(self) -> float:
        """Processor time of all threads of this process."""
        return self._core_minutes_before + (time.process_time() - self._cores) / 60

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Do not count the time spent in the block."""
        wall, cores = time.monotonic(), time.process_time()
        yield
        self._wall += time.monotonic() - wall
        self._cores += time.process_time() - cores
