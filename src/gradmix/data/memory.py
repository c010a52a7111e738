"""How much memory there is, and from which size on decoded images stay on disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import UserError

VARIABLE = "GRADMIX_MAP_ABOVE"
# Reading a folder holds its pixels twice for a moment, and a hold-out copies them once more: a quarter of
# the memory leaves room for that, and for the training itself.
_SHARE_FOR_IMAGES = 4
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def stays_on_disk(n_bytes: int) -> bool:
    """Whether decoded images of this size are better memory-mapped than held in memory."""
    return n_bytes > map_above()


def map_above() -> int:
    """$GRADMIX_MAP_ABOVE in bytes ("500M", "2G", "0" = always map), else a quarter of the memory."""
    given = os.environ.get(VARIABLE)
    return memory_bytes() // _SHARE_FOR_IMAGES if given is None else parse_bytes(given)


def parse_bytes(text: str) -> int:
    """A number of bytes with an optional unit.

    >>> parse_bytes("500 MB"), parse_bytes("2g"), parse_bytes("0")
    (524288000, 2147483648, 0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UserError(f"{VARIABLE} is '{text}'; give a size such as 500M, 2G, or 0 to map everything")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def memory_bytes() -> int:
    """The memory of this machine, or of the container if that has less."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        total = 8 * 2**30
    for file in _LIMITS:
        try:
            total = min(total, int(Path(file).read_text()))
        except (OSError, ValueError):  # no container, or "max"
            continue
    return total
