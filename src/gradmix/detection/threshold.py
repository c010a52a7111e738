"""From which score on an image is known, and how unusual a score is: threshold, p-value, their promises.

Let s_1 … s_n be the scores of known images that neither the network nor the index has seen, and s that of a
future known image, exchangeable with them (split conformal prediction, Vovk et al. 2005). **The threshold** t
is the ⌊α(n+1)⌋-th smallest of them; with −s as "nonconformity" it is the ⌈(n+1)(1−α)⌉-th smallest. Then,
whatever the network, the score and n,

    P(s < t) ≤ ⌊α(n+1)⌋ / (n+1) ≤ α,

with equality on the left where no two scores are equal; equal scores reject fewer, for s = t is accepted.
The probability is over the n held-out images and the new one together. For n < 1/α − 1 the rank is 0:
no threshold but −∞ keeps the promise, and ``guaranteed`` is False. Nothing is promised about unknown images.

**The p-value** is the share of known images that look no more familiar, the new one itself counted:

    p = (1 + #{i: s_i <= s}) / (n + 1),      in {1/(n+1), …, 1}.

The rank of a known image among all n + 1 is uniform, so P(p <= α) <= α for every α at once; scores that are
equal count as less familiar, which can only enlarge p ("super-uniform"). And p <= α is the same as s < t: the
answer "unknown" says p <= α, and α can be chosen after the fact (Bates et al. 2023).

- ``per_class`` sets one threshold for each class that an image may be *taken for* (a Mondrian taxonomy by the
  predicted class, which is known of a new image; the true class is not), and p compares with the known images
  that were taken for it. The promise is then P(rejected | known, taken for c) ≤ α for every class c with
  enough images, and hence P(rejected | known) ≤ α if all have; it is none about the images that truly are of
  c. A class that has too few for the rate is compared with all; so its p-values may depend on the rate.
- **Enrolled classes** have a threshold min(t, t_own), t_own from their m own images at rate max(α, 1/(m+1)).
  The p-value that goes with it is max(p, p_own), and p alone where the image looks less familiar than all m
  of them: p_own, which says so, can be no smaller than 1/(m+1). A rule, not a guarantee.
- **From training images** (``Threshold.held_out`` False) both are computed in the same way, and nothing is
  promised: they score higher than new images do, so the p-values of these are too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..errors import UserError
from .outputs import Scores

_ROUNDING = 1e-5  # of float32, accumulated over a search


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

    def describe_limit(self) -> str:
        """Return one line if there are too few images for a threshold, so that all is accepted; else ""."""
        if self.guaranteed:
            return ""
        return (
            f"{self.n} images cannot bound false rejects by {self.false_reject:g} ({self.needed} would do): "
            "nothing is rejected; allow more (false_reject), or set the threshold with more images"
        )

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


# The known scores, and p-values


@dataclass(frozen=True)
class EnrolledScores:
    """An enrolled class has ``images``; ``score`` (m,) is of those that are taken for it, each left out."""

    images: int
    score: Tensor


@dataclass(frozen=True, eq=False)
class KnownScores:
    """Scores (n,) float64 of known images, ascending, and the class (n,) that each is taken for.

    ``enrolled``: those of the images of enrolled classes, by label.
    """

    score: Tensor
    label: Tensor
    classes: int
    held_out: bool = True
    enrolled: Mapping[int, EnrolledScores] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        scores: Scores,
        classes: int,
        held_out: bool = True,
        enrolled: Mapping[int, EnrolledScores] | None = None,
    ) -> KnownScores:
        """Sort the scores of known images of ``classes`` classes."""
        value, order = scores.score.detach().double().cpu().sort()
        return cls(value, scores.label.cpu()[order], classes, held_out, enrolled or {})

    @classmethod
    def none(cls, classes: int) -> KnownScores:
        """Return that there is nothing to compare with: p is 1, and nothing is rejected."""
        return cls(torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.int64), classes, False)

    def threshold(self, false_reject: float, per_class: bool = False) -> Threshold:
        """Return the threshold at this rate; see :func:`calibrate` and, for enrolled classes, above."""
        check_rate(false_reject)
        if not len(self.score):
            return Threshold(-math.inf, false_reject, 0, False, False, per_class)
        base = calibrate(
            self.score,
            false_reject,
            labels=self.label if per_class else None,
            num_classes=self.classes,
            held_out=self.held_out,
        )
        if not self.enrolled:
            return base
        of_all = ClassThreshold(base.value, base.n, base.guaranteed)
        by_class = list(base.by_class or [of_all] * self.classes)
        for label, own in self.enrolled.items():
            value = min(by_class[label].value, _own_threshold(own.score, false_reject))
            by_class[label] = ClassThreshold(value, own.images, guaranteed=False)
        return replace(base, by_class=tuple(by_class))

    def p_values(self, scores: Scores, threshold: Threshold) -> Tensor:
        """Return p (N,) float64 of images taken for ``scores.label``, as above.

        Of the threshold only its rate and its kind are used: per class, or one for all.
        """
        score, label = scores.score.detach().double().cpu(), scores.label.cpu()
        p = conformal_p(self.score, score)
        if threshold.per_class:
            for c in sorted(set(label.tolist())):
                own = self.score[self.label == c]
                if conformal_rank(len(own), threshold.false_reject):
                    p[label == c] = conformal_p(own, score[label == c])
        for c, enrolled in self.enrolled.items():
            rows = label == c
            if len(enrolled.score) and bool(rows.any()):
                p_own = conformal_p(enrolled.score, score[rows])
                least = 1 / (len(enrolled.score) + 1)
                p[rows] = torch.where(p_own > least, torch.maximum(p[rows], p_own), p[rows])
        return p

    def snap_to(self, threshold: Threshold) -> KnownScores:
        """Return them with what equals a threshold but for rounding made equal to it.

        Scores that were computed again, on another processor maybe, go with a threshold from those of before.
        """
        score = self.score
        for value in filter(math.isfinite, {threshold.value, *(c.value for c in threshold.by_class)}):
            near = (score - value).abs() <= _ROUNDING * max(1.0, abs(value))
            score = torch.where(near, torch.tensor(value, dtype=score.dtype), score)
        return replace(self, score=score)


def conformal_p(known: Tensor, score: Tensor) -> Tensor:
    """Return p (N,) of scores (N,) among known ones (n,), ties counted; float64.

    >>> conformal_p(torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([0.5, 2.0, 9.0])).tolist()
    [0.2, 0.8, 1.0]
    """
    known = known.double().sort().values
    return (1 + torch.searchsorted(known, score.double(), right=True)).double() / (len(known) + 1)


def _own_threshold(own: Tensor, false_reject: float) -> float:
    """Return t_own of an enrolled class, from its images that are taken for it; inf without any."""
    if not len(own):
        return float("inf")
    return calibrate(own, max(false_reject, 1 / (len(own) + 1))).value
