"""Which classes are known and which are not: the field's splits as data, and the user's own."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, choose
from .benchmarks import BENCHMARKS

CLASSIC_PROTOCOLS = ("mnist", "svhn", "cifar10", "cifar+10", "cifar+50", "tinyimagenet")
PROTOCOLS = (*CLASSIC_PROTOCOLS, *BENCHMARKS)
FAMILIES = ("arpl_2020", "neal_2018", "medaf_f1")  # of the classic protocols' splits
DEFAULT_FAMILY = FAMILIES[0]
_FILE = Path(__file__).with_name("osr_splits.json")


@dataclass(frozen=True)
class Split:
    """The known and unknown classes of one trial.

    ``known`` and ``unknown`` are class indices (published splits) or class names (custom ones) of the data
    sets ``known_source`` and ``unknown_source``. A known class's label is its position in ``known``. Where
    whole data sets are unknown, ``unknown_source`` lists them and ``unknown`` is empty.
    """

    protocol: str
    family: str
    trial: int
    known_source: str
    known: tuple[int | str, ...]
    unknown_source: str
    unknown: tuple[int | str, ...]

    @property
    def hash(self) -> str:
        """Return 16 hex digits that change when any class, its order, or a data set's name does."""
        canonical = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def openness(self) -> float:
        return openness(len(self.known), len(self.unknown))


def openness(known: int, unknown: int) -> float:
    """Return 1 − √(k / (k + u)) for k known and u unknown classes: 0 is a closed world.

    >>> round(100 * openness(6, 4), 2)
    22.54
    """
    if known < 1 or unknown < 0:
        raise UserError(f"openness needs at least 1 known and 0 unknown classes, not {known} and {unknown}")
    return 1 - math.sqrt(known / (known + unknown))


def get_split(protocol: str, trial: int, family: str | None = None) -> Split:
    """Return the published split of one trial: 0 to 4, or 0 alone for a benchmark, which has no families.

    >>> get_split("cifar10", 0).known
    (0, 6, 4, 9, 1, 7)
    >>> get_split("openood-cifar10", 0).unknown_source
    'cifar100,tiny-imagenet,mnist,svhn,dtd,places365'
    """
    choose("protocol", protocol, PROTOCOLS)
    if protocol in BENCHMARKS:
        return _benchmark_split(protocol, trial, family)
    family = family or DEFAULT_FAMILY
    trials = _trials(protocol, family)
    if not 0 <= trial < len(trials):
        raise UserError(f"no trial {trial} of {protocol} in {family}: there are 0 to {len(trials) - 1}")
    known_source, unknown_source = published_splits()["data"][protocol]
    return Split(
        protocol=protocol,
        family=family,
        trial=trial,
        known_source=known_source,
        known=tuple(trials[trial]["known"]),
        unknown_source=unknown_source,
        unknown=tuple(trials[trial]["unknown"]),
    )


def _benchmark_split(protocol: str, trial: int, family: str | None) -> Split:
    benchmark = BENCHMARKS[protocol]
    if family not in (None, benchmark.family):
        raise UserError(f"{protocol} has one split and no families: leave --family {family} out")
    if trial != 0:
        raise UserError(f"no trial {trial} of {protocol}: it has one split, trial 0")
    sources = dict.fromkeys(unknown.source for unknown in benchmark.unknown)
    classes = tuple(c for unknown in benchmark.unknown for c in unknown.classes or ())
    known = benchmark.known_source
    return Split(protocol, benchmark.family, 0, known, benchmark.known, ",".join(sources), classes)


def custom_split(
    source: str,
    class_names: Sequence[str],
    known: Sequence[str] | None = None,
    n_known: int | None = None,
    seed: int = 0,
) -> Split:
    """Return a split of the user's own data: the classes in ``known``, or ``n_known`` drawn with ``seed``.

    All other classes are unknown. The seed is the split's ``trial``.

    >>> custom_split("pets", ["cat", "dog", "newt"], known=["newt", "cat"]).unknown
    ('dog',)
    """
    names = list(class_names)
    if (known is None) == (n_known is None):
        raise UserError("say which classes are known, or how many: one of the two (known=…, n_known=…)")
    if known is not None:
        chosen = [choose("class", name, names) for name in known]
        if len(set(chosen)) != len(chosen):
            raise UserError(f"a class is named twice among the known ones: {', '.join(chosen)}")
    else:
        if seed < 0:
            raise UserError(f"the seed that draws the known classes must not be negative, not {seed}")
        drawn = np.random.default_rng(seed).permutation(len(names))[:n_known]
        chosen = [names[i] for i in sorted(drawn)]
    number = len(chosen) if n_known is None else n_known
    if not 2 <= number < len(names):
        raise UserError(f"{number} of {len(names)} classes cannot be the known ones: at least 2, and not all")
    rest = tuple(name for name in names if name not in set(chosen))
    return Split("custom", "custom", seed, source, tuple(chosen), source, rest)


def duplicates(protocol: str, family: str = DEFAULT_FAMILY) -> list[tuple[int, int]]:
    """Return the pairs of trials that have the same known and the same unknown classes, in any order.

    >>> duplicates("svhn")
    [(0, 1)]
    """
    trials = [(frozenset(t["known"]), frozenset(t["unknown"])) for t in _trials(protocol, family)]
    return [(a, b) for a, b in combinations(range(len(trials)), 2) if trials[a] == trials[b]]


def splits_hash() -> str:
    """Return 16 hex digits of SHA-256 over the file of published splits, to be printed with results."""
    return hashlib.sha256(_FILE.read_bytes()).hexdigest()[:16]


@functools.cache
def published_splits() -> dict[str, Any]:
    """Return the file of published splits: families, their sources and notes, class names, test set sizes."""
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content


def _trials(protocol: str, family: str) -> list[dict[str, list[int]]]:
    choose("protocol", protocol, CLASSIC_PROTOCOLS)
    choose("family of splits", family, FAMILIES)
    families = published_splits()["families"]
    if protocol not in families[family]["splits"]:
        having = ", ".join(name for name in FAMILIES if protocol in families[name]["splits"])
        raise UserError(f"family {family} has no {protocol} splits; these have: {having}")
    trials: list[dict[str, list[int]]] = families[family]["splits"][protocol]
    return trials
