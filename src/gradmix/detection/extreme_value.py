"""The largest distances of a class, as extreme-value theory describes them: how unusual is a larger one?

libMR, which OpenMax was published with, fits a Weibull distribution of two parameters by maximum likelihood
to d − min + T over the tail, T = 10,000. The logarithm of a Weibull variable has the Gumbel distribution of
minima with location m = log(scale) and width b = 1/shape, and T·log(1 + d/T) → d as T grows: with so large a
T the fit *is* a Gumbel fit to the distances themselves. So one fit serves every T, and the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError

LIBMR = "libmr"  # T → ∞
_STEPS = 200  # of a bisection: far more than the digits of a float64
_SMALLEST_WIDTH = 1e-9  # of the size of the distances: where they are all equal, w is a step


def fit_gumbel(values: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Fit P(x ≤ v) = 1 − exp(−exp((v − m)/b)) to each row of values (C, n) by maximum likelihood.

    ``there`` (C, n) says which values count, at least one per row. Returns m and b, (C,) float64.

    The likelihood is largest where b = Σ x e^{x/b} / Σ e^{x/b} − mean x; right minus left falls in b from
    max − mean at 0 to at most 0 at max − mean. There m = b·log mean e^{x/b}.
    """
    x = values.double()
    count = there.sum(dim=1)
    top = x.masked_fill(~there, -torch.inf).amax(dim=1, keepdim=True)
    below = (x - top).masked_fill(~there, 0.0)  # ≤ 0: no exponential overflows
    mean = below.sum(dim=1) / count

    def weights(b: Tensor) -> Tensor:
        return torch.exp(below / b[:, None]).masked_fill(~there, 0.0)

    smallest = _SMALLEST_WIDTH * top[:, 0].abs().clamp_min(torch.finfo(torch.float32).tiny)
    low, high = torch.zeros_like(mean), -mean
    for _ in range(_STEPS):
        middle = ((low + high) / 2).clamp_min(smallest)
        w = weights(middle)
        too_narrow = (w * below).sum(dim=1) / w.sum(dim=1) - mean > middle
        low, high = torch.where(too_narrow, middle, low), torch.where(too_narrow, high, middle)
    b = ((low + high) / 2).clamp_min(smallest)
    m = top[:, 0] + b * torch.log(weights(b).sum(dim=1) / count)
    return m, b


@dataclass(frozen=True)
class Tails:
    """The tails of C classes. ``origin`` is the smallest distance of each; ``fitted``: False where w = 0."""

    location: Tensor  # (C,) float64
    width: Tensor  # (C,) float64
    origin: Tensor  # (C,) float64
    fitted: Tensor  # (C,) bool
    shift: float | str = LIBMR

    @classmethod
    def fit(cls, tails: Tensor, there: Tensor, shift: float | str = LIBMR) -> Tails:
        """Fit tails (C, n), of which ``there`` (C, n) are distances; a class without any is not fitted."""
        fitted = there.any(dim=1)
        there = there | ~fitted[:, None]  # a class without distances: anything, it is not used
        x = tails.double().where(there, torch.zeros((), dtype=torch.float64))
        origin = x.masked_fill(~there, torch.inf).amin(dim=1)
        location, width = fit_gumbel(_log_shifted(x, origin[:, None], shift), there)
        return cls(location, width, origin, fitted, shift)

    def to(self, device: torch.device) -> Tails:
        """Return the same on another device."""
        moved = [t.to(device) for t in (self.location, self.width, self.origin, self.fitted)]
        return Tails(moved[0], moved[1], moved[2], moved[3], self.shift)

    def outlyingness(self, distances: Tensor) -> Tensor:
        """Return w (N, C) in [0, 1] of distances (N, C): near 1 for what is farther than the class's tail."""
        x = _log_shifted(distances, self.origin, self.shift)
        w = -torch.expm1(-torch.exp((x - self.location) / self.width))
        return w * self.fitted


def check_shift(shift: float | str) -> float | str:
    """Return the shift if it is "libmr" or a positive number.

    >>> check_shift(0)
    Traceback (most recent call last):
    ...
    gradmix.errors.UserError: shift must be 'libmr' or a positive number, not 0
    """
    if shift != LIBMR and (isinstance(shift, str) or not 0 < shift < float("inf")):
        raise UserError(f"shift must be '{LIBMR}' or a positive number, not {shift}")
    return shift


def _log_shifted(distances: Tensor, origin: Tensor, shift: float | str) -> Tensor:
    if isinstance(shift, str):
        return distances
    return torch.log((distances - origin + shift).clamp_min(0))  # −∞, hence w = 0, far below the tail
