"""The cores and the memory that this process may use."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's mallopt: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
_SETTINGS_OF_GLIBC = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
_MIB = 2**20


def count_cores() -> int:
    """Return the number of cores this process may use; in a container often fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the memory of this machine in bytes, or the container's limit if that is lower."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        total = 8 * 2**30
    for file in _CONTAINER_LIMITS:
        try:
            total = min(total, int(Path(file).read_text()))
        except (OSError, ValueError):  # no container, or "max"
            continue
    return total


@contextmanager
def reuse_freed_memory() -> Iterator[None]:
    """Keep large buffers that are freed for the next ones; afterwards give the memory back.

    glibc asks the kernel anew for every buffer above 32 MB, which clears it page by page: a fifth of the time
    of a training step on 512 images. Where the C library is another one, or where somebody has set glibc's
    own environment variables for this, nothing is done.
    """
    chosen = any(name in os.environ for name in _SETTINGS_OF_GLIBC)
    libc = ctypes.CDLL(None) if sys.platform == "linux" and not chosen else None
    if libc is None or not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, 1024 * _MIB)
    libc.mallopt(_TRIM_THRESHOLD, 2047 * _MIB)
    try:
        yield
    finally:
        # What glibc's own adjustment arrives at in a process with large buffers.
        libc.mallopt(_MMAP_THRESHOLD, 32 * _MIB)
        libc.mallopt(_TRIM_THRESHOLD, 64 * _MIB)
        libc.malloc_trim(0)
