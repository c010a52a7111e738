"""The cores and the memory that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


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
