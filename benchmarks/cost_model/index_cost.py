"""The cost of an index of features: bytes, machines, and the time of a query, exactly or by inverted lists.

Letters: M features of d dimensions on n devices, q queries at a time, C classes, k neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .cost import FLOAT, Machine

QUERIES_PER_SCAN = 512  # as detection/bank.py: so many queries share one reading of the features
ROW_BYTES = 24  # label, row and image number beside every feature, as detection/bank.py keeps them
USABLE = 0.9  # share of a device's memory that features may fill


@dataclass(frozen=True)
class Format:
    """How a feature is kept: ``per_value`` bytes per dimension, or ``code`` bytes whatever the dimension."""

    name: str
    per_value: float = 0.0
    code: int = 0

    def bytes(self, dim: int) -> float:
        return self.per_value * dim + self.code


# Only the first is what gradmix does; the others are arithmetic.
FORMATS = (
    Format("float32", 4),
    Format("float16", 2),
    Format("int8", 1),
    Format("product codes, 16 B", code=16),
)


@dataclass(frozen=True)
class Index:
    """M features of ``dim`` dimensions in one format, of ``classes`` classes."""

    features: int
    dim: int
    classes: int
    format: Format = FORMATS[0]

    @property
    def bytes(self) -> float:
        """M·(d·4 + 24) in float32.

        >>> Index(10**9, 128, 1000).bytes / 10**9
        536.0
        """
        return self.features * (self.format.bytes(self.dim) + ROW_BYTES)

    def devices_needed(self, machine: Machine) -> int:
        return math.ceil(self.bytes / (USABLE * machine.memory))


@dataclass(frozen=True)
class QueryCost:
    """Of q queries together; ``seconds`` is also how long each of them waits."""

    queries: int
    flops: float
    read: float  # bytes of features, on all devices together
    seconds: float

    @property
    def per_second(self) -> float:
        return self.queries / self.seconds


def exact(
    index: Index, machine: Machine, devices: int, queries: int, whole_classes: bool = True
) -> QueryCost:
    """Every feature is compared: 2qMd FLOP, and ⌈q/512⌉ readings of all features.

    Seconds: max(FLOP/rate, bytes/bandwidth)/n, then 8qM/n bytes of similarities (written and looked
    through), then the merge.
    """
    flops = 2.0 * queries * index.features * index.dim
    read = math.ceil(queries / QUERIES_PER_SCAN) * index.features * index.format.bytes(index.dim)
    products = max(flops / machine.matmul_rate, read / machine.memory_bandwidth) / devices
    selecting = 2 * FLOAT * queries * index.features / devices / machine.memory_bandwidth
    return QueryCost(
        queries, flops, read, products + selecting + merge(index, machine, devices, queries, whole_classes)
    )


def inverted(
    index: Index, machine: Machine, devices: int, queries: int, lists: int, probes: int
) -> QueryCost:
    """Compare with the centres of all lists, then with the features of the nearest ``probes`` of them.

    2qd·(L + M·probes/L) FLOP and qM·probes/L features read (two queries seldom want the same list). The
    answer is not exact, and of a class in no probed list only its mean is known (as in ``approximate.py``).
    """
    compared = index.features * probes / lists
    flops = 2.0 * queries * index.dim * (lists + compared)
    read = queries * compared * index.format.bytes(index.dim)
    centres = math.ceil(queries / QUERIES_PER_SCAN) * lists * index.dim * FLOAT
    products = max(flops / machine.matmul_rate, (read + centres) / machine.memory_bandwidth) / devices
    return QueryCost(queries, flops, read, products + merge(index, machine, devices, queries, True))


def merge_bytes(index: Index, whole_classes: bool, k: int = 3) -> int:
    """Return the bytes that a device sends for one query.

    Where all features of a class are on one device, it knows d_c: its best class, that d_c, and the sum
    of all its d_c are enough, 12 bytes. Where they are not, the k largest of every class: 4Ck bytes.
    """
    return 3 * FLOAT if whole_classes else FLOAT * index.classes * k


def merge(index: Index, machine: Machine, devices: int, queries: int, whole_classes: bool) -> float:
    """Return the seconds until one device has what all found: ⌈log₂n⌉·latency + (n−1)·q·bytes/bandwidth."""
    if devices == 1:
        return 0.0
    link = machine.link(devices)
    arriving = (devices - 1) * queries * merge_bytes(index, whole_classes)
    return math.ceil(math.log2(devices)) * link.latency + arriving / link.bandwidth
