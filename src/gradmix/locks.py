"""One process at a time: a lock is a file, and the system frees it when its holder dies, however it dies.

Lock files are never deleted: a process that waits for one would then hold a lock that nobody else sees.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from .progress import progress

_SECONDS_BETWEEN_TRIES = 0.1


@contextmanager
def held(file: Path, waiting: str) -> Iterator[None]:
    """Hold the lock for the block, after whoever has it; ``waiting`` says for what, if it takes long."""
    lock = FileLock(file)
    with progress(waiting, 1) as advance:
        while not _taken(lock):
            time.sleep(_SECONDS_BETWEEN_TRIES)
            advance(0)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def claimed(file: Path) -> Iterator[bool]:
    """Whether the lock is ours until the end of the block: at once, or not at all."""
    lock = FileLock(file)
    ours = _taken(lock)
    try:
        yield ours
    finally:
        if ours:
            lock.release()


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    return True
