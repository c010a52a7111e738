"""A threshold between two kinds of errors by extreme-value theory, as C2AE sets it (Oza & Patel 2019).

r_m are errors of images drawn as what they are, r_n of images drawn as something else. If images of unknown
classes are drawn like the latter, and come with chance p_u, the threshold that errs least is

    τ* = argmin_τ (1 − p_u) · P(r_m ≥ τ) + p_u · P(r_n ≤ τ).

What decides are the upper tail of r_m and the lower one of r_n, where samples are rare: both tails are
generalized Pareto distributions, P(excess > t) = (1 + ξt/σ)^(−1/ξ).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError

TAIL = 0.1  # share of the values that is fitted
FEWEST = 20  # values that a tail can be fitted to: then there are two excesses
_GRID = 10_001  # thresholds that are tried, from the least error to the largest
_SMALLEST = 1e-12  # of the size of the excesses: where they are all equal, the tail ends there


def fit_pareto(excesses: Tensor) -> tuple[float, float]:
    """Return shape ξ and scale σ of the generalized Pareto distribution of excesses (m,) ≥ 0.

    By probability-weighted moments (Hosking & Wallis 1987), which always exist:
    ξ = 2 − a₀/(a₀ − 2a₁), σ = 2a₀a₁/(a₀ − 2a₁), a₀ = mean x, a₁ = mean of x·(share of larger ones).

    >>> shape, scale = fit_pareto(torch.tensor([1.0, 2.0, 3.0]))  # uniform on [0, 4]
    >>> round(shape, 6), round(scale, 6)
    (-1.0, 4.0)
    """
    x = excesses.double().sort().values
    larger = torch.arange(len(x) - 1, -1, -1, dtype=torch.float64, device=x.device) / max(1, len(x) - 1)
    a0, a1 = float(x.mean()), float((x * larger).mean())
    spread = max(a0 - 2 * a1, _SMALLEST * a0, torch.finfo(torch.float64).tiny)
    return 2 - a0 / spread, 2 * a0 * a1 / spread


@dataclass(frozen=True)
class UpperTail:
    """Values (n,), of which those above ``start`` are described by a generalized Pareto distribution."""

    values: Tensor
    start: float
    shape: float
    scale: float

    @staticmethod
    def fit(values: Tensor, share: float = TAIL) -> UpperTail:
        """Fit the ``share`` largest of values (n,)."""
        require_tail(len(values))
        ascending = values.double().sort().values
        count = round(share * len(values))
        start = float(ascending[-count - 1])
        return UpperTail(ascending, start, *fit_pareto(ascending[-count:] - start))

    def exceed(self, level: Tensor) -> Tensor:
        """Return P(value ≥ level) of levels (g,): the observed share up to ``start``, the fit above."""
        n = len(self.values)
        observed = (n - torch.searchsorted(self.values, level)).double() / n
        above = (level - self.start).clamp_min(0) / max(self.scale, torch.finfo(torch.float64).tiny)
        if abs(self.shape) < 1e-9:
            survive = torch.exp(-above)
        else:
            survive = (1 + self.shape * above).clamp_min(0) ** (-1 / self.shape)
        share = int((self.values > self.start).sum()) / n
        return torch.where(level > self.start, share * survive, observed)


def require_tail(count: int) -> None:
    """Raise UserError for fewer images than a tail can be fitted to."""
    if count < FEWEST:
        raise UserError(
            f"the pareto threshold fits the tails of the errors of at least {FEWEST} images, and there are "
            f"{count}; give more images, or take error_threshold: conformal"
        )


def pareto_threshold(match: Tensor, nonmatch: Tensor, unknown_chance: float = 0.5) -> float:
    """Return τ* of errors r_m (n,) and r_n (n′,).

    Where several levels are equally good, as in a gap between the two, the middle one of them.
    """
    upper, lower = UpperTail.fit(match), UpperTail.fit(-nonmatch)
    least, largest = (float(f(torch.stack([f(match), f(nonmatch)]))) for f in (torch.amin, torch.amax))
    levels = torch.linspace(least, largest, _GRID, dtype=torch.float64)
    risk = (1 - unknown_chance) * upper.exceed(levels) + unknown_chance * lower.exceed(-levels)
    best = (risk <= risk.amin() + 1e-12).nonzero()[:, 0]
    return float(levels[best[len(best) // 2]])
