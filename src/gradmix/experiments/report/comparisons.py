"""Which rows differ by more than chance: paired differences to one row, and mean ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..declaration import Bench, Column
from ..engine.results import ExperimentResult

_CHANCE = 0.05


@dataclass(frozen=True)
class Difference:
    """The mean over trials of a row minus another, and its 95 % interval by Student's t."""

    mean: float
    low: float
    high: float
    count: int


def measure_difference(ours: Mapping[int, float], others: Mapping[int, float]) -> Difference | None:
    """Compare two rows on the trials that both have; None with fewer than two.

    mean ± t · s / √n, s the standard deviation of the n differences, t the 97.5 % quantile for n − 1.

    >>> found = measure_difference({0: 3.0, 1: 5.0, 2: 9.0}, {0: 2.0, 1: 3.0})
    >>> found.mean, round(found.high - found.mean, 4)  # 12.7062 · 0.7071 / √2
    (1.5, 6.3531)
    """
    from scipy.stats import t

    both = sorted(ours.keys() & others.keys())
    if len(both) < 2:
        return None
    found = np.array([ours[trial] - others[trial] for trial in both])
    half = float(t.ppf(1 - _CHANCE / 2, len(both) - 1)) * float(found.std(ddof=1)) / math.sqrt(len(both))
    mean = float(found.mean())
    return Difference(mean, mean - half, mean + half, len(both))


def compare_with_reference(
    result: ExperimentResult, arm: str, bench: Bench, column: Column
) -> Difference | None:
    """Return how a row differs from the experiment's reference; None for the reference itself."""
    reference = result.plan.experiment.reference
    if not reference or arm == reference:
        return None
    ours, others = (_read_trials(result, name, bench.name, column.metric) for name in (arm, reference))
    return measure_difference(ours, others)


@dataclass(frozen=True)
class Ranks:
    """The mean rank of each row, 1 being the best, over ``cells``: trials of benches that all rows have.

    Two rows whose mean ranks differ by more than ``critical`` differ by more than chance (Nemenyi's test at
    5 %), if the cells were independent; trials of one bench are less than that.
    """

    mean: Mapping[str, float]
    cells: int
    critical: float


def rank_rows(result: ExperimentResult, metric: str) -> Ranks | None:
    """Rank the rows in every cell that all rows with any result have; ties share their mean rank."""
    from scipy.stats import rankdata

    there = {(t.arm, t.bench, t.trial): t.metrics[metric] for t in result.trials if metric in t.metrics}
    arms = [arm.name for arm in result.arms if any(name == arm.name for name, _, _ in there)]
    cells = sorted({(bench, trial) for _, bench, trial in there})
    whole = [cell for cell in cells if all((arm, *cell) in there for arm in arms)]
    if len(arms) < 2 or len(whole) < 2:
        return None
    ranks = np.array([rankdata([-there[(arm, *cell)] for arm in arms]) for cell in whole])
    mean = dict(zip(arms, ranks.mean(0).tolist(), strict=True))
    return Ranks(mean, len(whole), critical_difference(len(arms), len(whole)))


def critical_difference(rows: int, cells: int) -> float:
    """Return Nemenyi's critical difference of mean ranks, q · √(k (k + 1) / 6 n) (Demšar 2006).

    >>> round(critical_difference(5, 30), 3)  # q = 2.728
    1.114
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - _CHANCE, rows, np.inf)) / math.sqrt(2)
    return q * math.sqrt(rows * (rows + 1) / (6 * cells))


def format_difference(found: Difference | None, scale: float) -> str:
    """Return "+1.20 [+0.30, +2.10]", or nothing.

    >>> format_difference(Difference(0.012, 0.003, 0.021, 4), 100)
    '+1.20 [+0.30, +2.10]'
    """
    if found is None:
        return ""
    return f"{scale * found.mean:+.2f} [{scale * found.low:+.2f}, {scale * found.high:+.2f}]"


def _read_trials(result: ExperimentResult, arm: str, bench: str, metric: str) -> dict[int, float]:
    return {t.trial: t.metrics[metric] for t in result.of(arm, bench) if metric in t.metrics}
