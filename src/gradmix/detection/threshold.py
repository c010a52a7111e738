"""Where to say "unknown": a threshold that keeps a promise about known images.

Split conformal prediction: if the held-out known scores and those of future known images are exchangeable,
accepting iff score >= the ⌊α(n+1)⌋-th smallest held-out score wrongly rejects a known image with
probability at most α, whatever the network, the score and n. Nothing is promised about unknown images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError


@dataclass(frozen=True)
class Threshold:
    """Accept as known iff score >= ``value``.

    ``guaranteed`` is False when the ``n`` held-out images are too few for the rate asked for:
    then ``value`` is -inf, which rejects nothing, known or unknown; ``needed`` says how many would do.
    """

    value: float
    false_reject: float
    n: int
    guaranteed: bool

    @property
    def needed(self) -> int:
        """The fewest held-out images that allow a rejection at all at this rate.

        >>> calibrate(torch.rand(10), 0.05).needed
        19
        """
        return math.ceil(1 / self.false_reject - 1 - 1e-9)

    def accepts(self, score: Tensor) -> Tensor:
        """(N,) bool: which images are taken for known."""
        return score >= self.value


def calibrate(known_scores: Tensor, false_reject: float = 0.05) -> Threshold:
    """The conformal threshold of held-out known scores (n,) for at most ``false_reject`` known rejected.

    >>> calibrate(torch.arange(1.0, 100.0), 0.05)
    Threshold(value=5.0, false_reject=0.05, n=99, guaranteed=True)
    """
    if not 0 < false_reject < 1:
        raise UserError(f"false_reject must lie between 0 and 1, not {false_reject}")
    if len(known_scores) == 0:
        raise UserError("no scores of known images to set the threshold with; hold some images out")
    if bool(torch.isnan(known_scores).any()):
        raise UserError("the scores of the known images contain NaN")
    n = len(known_scores)
    rank = math.floor(false_reject * (n + 1) + 1e-9)  # 0.29 * 100 is 28.999… in floating point
    if rank < 1:
        return Threshold(-math.inf, false_reject, n, guaranteed=False)
    value = float(torch.kthvalue(known_scores.double(), rank).values)
    return Threshold(value, false_reject, n, guaranteed=True)


def conformal_threshold(known_scores: Tensor, false_reject: float = 0.05) -> float:
    """The value of ``calibrate``: -inf, accepting everything, if there are too few scores."""
    return calibrate(known_scores, false_reject).value
