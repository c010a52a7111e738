"""How many cores there are to share out."""

from __future__ import annotations

import os


def cores() -> int:
    """Those that this process may use, which in a container are often fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
