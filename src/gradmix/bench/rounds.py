"""Measure contestants in turn, so that a busy moment of the machine meets all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import UserError
from ..progress import progress


@dataclass(frozen=True)
class Timing:
    """Median seconds; median and quartiles of the ratio to the reference of the same round."""

    name: str
    seconds: float
    ratio: float
    low: float
    high: float


def take_turns(contestants: Mapping[str, Callable[[], object]], reference: str, rounds: int) -> list[Timing]:
    """Call every contestant once per round; the first round warms up caches and is not counted.

    Who comes first changes from round to round: what a contestant leaves in caches and in the allocator
    costs or helps the one after it.
    """
    if rounds < 1:
        raise UserError(f"--rounds must be at least 1, not {rounds}")
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    with progress("measuring", (rounds + 1) * len(contestants)) as advance:
        for number in range(rounds + 1):
            cycle, turn = divmod(number, len(names))
            order = names[turn:] + names[:turn]
            for name in reversed(order) if cycle % 2 else order:
                started = time.perf_counter()
                contestants[name]()
                taken = time.perf_counter() - started
                if number:
                    seconds[name].append(taken)
                advance(1, note=name)
    return [summarize(name, times, seconds[reference]) for name, times in seconds.items()]


def summarize(name: str, times: list[float], reference: list[float]) -> Timing:
    """Summarize the rounds; ratios are taken round by round, because a slow round is slow for both."""
    ratios = [t / r for t, r in zip(times, reference, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return Timing(name, statistics.median(times), middle, low, high)
