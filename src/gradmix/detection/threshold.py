"""Accept as known from which score on: the threshold, and what it promises.

The threshold keeps a promise about known images, by split conformal prediction (Vovk et al. 2005). Let
s_1 … s_n be the scores of known images that neither the network nor the index has seen, and s that of a
future known image, exchangeable with them. Its "nonconformity" is −s, and the conformal bound is the
⌈(n+1)(1−α)⌉-th smallest nonconformity, that is the ⌊α(n+1)⌋-th smallest score t. Then, whatever the network,
the score and n,

    P(s < t) ≤ ⌊α(n+1)⌋ / (n+1) ≤ α,

with equality on the left where no two scores are equal; equal scores reject fewer, for s = t is accepted.
The probability is over the n held-out images and the new one together. For n < 1/α − 1 the rank is 0:
no threshold but −∞ keeps the promise, and ``guaranteed`` is False. Nothing is promised about unknown images.

``per_class`` sets one threshold for each class that an image may be *taken for* (a Mondrian taxonomy by the
predicted class, which is known of a new image; the true class is not). The promise is then
P(rejected | known, taken for c) ≤ α for every class c with enough images, and hence P(rejected | known) ≤ α
if all have. It is not a promise about the images that truly are of c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError


@dataclass(frozen=True)
class ClassThreshold:
    """The threshold of images taken for one class, set with ``n`` images."""

    value: float
    n: int
    guaranteed: bool


@dataclass(frozen=True)
class Threshold:
    """Accept as known iff score >= ``value``, or the value of the class that the image is taken for.

    ``guaranteed`` is False when the ``n`` held-out images are too few for the rate asked for: then ``value``
    is -inf, which rejects nothing, known or unknown; ``needed`` says how many would do. ``held_out`` is False
    when the scores came from images that the network was trained on, which score higher than new ones: then
    nothing is promised, however many they are. ``spread`` is the standard deviation of the scores.
    """

    value: float
    false_reject: float
    n: int
    guaranteed: bool
    held_out: bool = True
    per_class: bool = False
    by_class: tuple[ClassThreshold, ...] = ()  # empty: ``value`` for all
    spread: float = 0.0

    @property
    def needed(self) -> int:
        """The fewest held-out images (of a class, if per class) that allow a rejection at all at this rate.

        >>> calibrate(torch.rand(10), 0.05).needed
        19
        """
        return needed_images(self.false_reject)

    @property
    def promised(self) -> bool:
        """Whether the finite-sample guarantee holds: images held out, and enough of them."""
        return self.held_out and self.guaranteed

    def of(self, label: Tensor) -> Tensor:
        """Return the threshold (N,) float64 of each of the classes (N,) that images are taken for."""
        if not self.by_class:
            return torch.full(label.shape, self.value, dtype=torch.float64, device=label.device)
        values = [c.value for c in self.by_class]
        return torch.tensor(values, dtype=torch.float64, device=label.device)[label]

    def accepts(self, score: Tensor, label: Tensor | None = None) -> Tensor:
        """Return (N,) bool, which images are known; ``label`` (N,) is what they are taken for."""
        if not self.by_class:
            return score >= self.value
        if label is None:
            raise UserError("this threshold differs from class to class; give the labels beside the scores")
        return score >= self.of(label)

    def rate_range(self, confidence: float = 0.9) -> tuple[float, float]:
        """Return between which rates known images are rejected in the long run, with this confidence.

        The promise is about the average over draws of the held-out images. Given those at hand, the rate
        is distributed as Beta(r, n + 1 − r), r = ⌊α(n+1)⌋ (continuous scores, one threshold for all).

        >>> low, high = calibrate(torch.rand(199), 0.05).rate_range()
        >>> round(low, 3), round(high, 3)
        (0.028, 0.078)
        """
        if not self.guaranteed:
            return 0.0, 0.0
        from scipy.stats import beta

        rank = conformal_rank(self.n, self.false_reject)
        tail = (1 - confidence) / 2
        low, high = beta.ppf([tail, 1 - tail], rank, self.n + 1 - rank).tolist()
        return low, high


def needed_images(false_reject: float) -> int:
    """Return the fewest held-out images that allow a rejection at all: the smallest n with 1/(n+1) <= α.

    >>> needed_images(0.05), needed_images(0.1)
    (19, 9)
    """
    n = max(1, math.ceil(1 / false_reject) - 1)
    while 1 / (n + 1) > false_reject:
        n += 1
    while n > 1 and 1 / n <= false_reject:
        n -= 1
    return n


def conformal_rank(n: int, false_reject: float) -> int:
    """Return which of n ascending scores is the threshold; 0 if none can be.

    That is ⌊α(n+1)⌋ = n + 1 − ⌈(n+1)(1−α)⌉: the largest r with r/(n+1) <= α. The quotient is compared as
    written, in floating point, because p-values are such quotients: so p <= α is the same decision.

    >>> conformal_rank(99, 0.29)  # 0.29 * 100 is 28.999… in floating point
    29
    """
    rank = min(math.floor(false_reject * (n + 1)), n)
    while rank < n and (rank + 1) / (n + 1) <= false_reject:
        rank += 1
    while rank / (n + 1) > false_reject:
        rank -= 1
    return rank


def check_rate(false_reject: float) -> float:
    """Return the share of known images that may be rejected, or raise UserError if it is none."""
    if not 0 < false_reject < 1:
        raise UserError(f"false_reject must lie between 0 and 1, not {false_reject}")
    return false_reject


def calibrate(
    known_scores: Tensor,
    false_reject: float = 0.05,
    *,
    labels: Tensor | None = None,
    num_classes: int = 0,
    held_out: bool = True,
) -> Threshold:
    """Return the threshold of known scores (n,) for at most ``false_reject`` known images rejected.

    With ``labels`` (n,), the classes 0 … num_classes−1 that the images were *taken for*, one threshold per
    class; a class with too few images of its own gets that of all together, without a promise of its own.

    >>> calibrate(torch.arange(1.0, 100.0), 0.05).value
    5.0
    """
    check_rate(false_reject)
    if len(known_scores) == 0:
        raise UserError("no scores of known images to set the threshold with; hold some images out")
    if bool(torch.isnan(known_scores).any()):
        raise UserError("the scores of the known images contain NaN")
    scores = known_scores.double()
    overall = _of_class(scores, false_reject, -math.inf)
    by_class: Sequence[ClassThreshold] = ()
    if labels is not None:
        by_class = [_of_class(scores[labels == c], false_reject, overall.value) for c in range(num_classes)]
    return Threshold(
        overall.value,
        false_reject,
        overall.n,
        overall.guaranteed,
        held_out,
        labels is not None,
        tuple(by_class),
        float(scores.sort().values.std(correction=0)),  # rounded the same, whatever their order
    )


def conformal_threshold(known_scores: Tensor, false_reject: float = 0.05) -> float:
    """Return the value of ``calibrate``: -inf, accepting everything, if there are too few scores."""
    return calibrate(known_scores, false_reject).value


def _of_class(scores: Tensor, false_reject: float, if_too_few: float) -> ClassThreshold:
    rank = conformal_rank(len(scores), false_reject)
    if rank < 1:
        return ClassThreshold(if_too_few, len(scores), guaranteed=False)
    return ClassThreshold(float(torch.kthvalue(scores, rank).values), len(scores), guaranteed=True)
