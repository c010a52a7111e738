"""C2AE's threshold by loops, and by scipy's generalized Pareto distribution."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import genpareto


def fit(excesses: Sequence[float]) -> tuple[float, float]:
    """Shape and scale by probability-weighted moments: how many of the others are larger, for each."""
    n = len(excesses)
    mean = sum(excesses) / n
    weighted = 0.0
    for i, x in enumerate(sorted(excesses)):
        weighted += x * (n - 1 - i) / (n - 1) / n
    return 2 - mean / (mean - 2 * weighted), 2 * mean * weighted / (mean - 2 * weighted)


def exceed(values: Sequence[float], level: float, share: float = 0.1) -> float:
    """P(value ≥ level), by the tail's fit above its start, else by counting."""
    ascending = sorted(values)
    count = round(share * len(values))
    start = ascending[-count - 1]
    if level <= start:
        return sum(v >= level for v in values) / len(values)
    shape, scale = fit([v - start for v in ascending[-count:]])
    return count / len(values) * float(genpareto.sf(level - start, shape, scale=scale))


def risk(match: Sequence[float], nonmatch: Sequence[float], level: float, chance: float) -> float:
    """(1 − p_u)·P(r_m ≥ τ) + p_u·P(r_n ≤ τ)."""
    missed = exceed(match, level)
    accepted = exceed([-r for r in nonmatch], -level)
    return (1 - chance) * missed + chance * accepted
