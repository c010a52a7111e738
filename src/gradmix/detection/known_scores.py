"""How unusual is this for a known image? Conformal p-values, from the scores that set the threshold.

Let s_1 … s_n be the scores of known images that neither the network nor the index has seen, and s that of a
new one. Its p-value is the share of known images that look no more familiar, itself counted:

    p = (1 + #{i: s_i <= s}) / (n + 1),      in {1/(n+1), …, 1}.

If the new image is known, and exchangeable with the others, its rank among all n + 1 is uniform, so
P(p <= α) <= α for every α at once; scores that are equal count as less familiar, which can only enlarge p
("super-uniform"). And p <= α is the same as s < t, t the ⌊α(n+1)⌋-th smallest s_i: the answer "unknown" says
p <= α, and α can be chosen after the fact (Vovk et al. 2005; Bates et al. 2023).

- **Per class**: p compares with the known images that were *taken for* the same class. A class that has too
  few of them for the rate is compared with all, as its threshold is. Which classes these are depends on the
  rate, so their p-values may, too; those of all others do not.
- **Enrolled classes** have a threshold min(t, t_own), t_own from their m own images at rate max(α, 1/(m+1)).
  The p-value that goes with it is max(p, p_own), and p alone where the image looks less familiar than all m
  of them: p_own, which says so, can be no smaller than 1/(m+1). A rule, not a guarantee, as the threshold.
- **From training images** (``Threshold.held_out`` False) it is computed in the same way, and nothing is
  promised: they score higher than new images do, so the p-values of these are too small.

``smoothed`` breaks ties by chance: p̃ = (#{s_i < s} + U (1 + #{s_i = s})) / (n + 1) with U uniform on [0, 1)
is exactly uniform for known images, where p has steps of 1/(n+1) only. Tests of uniformity need that; an
answer must not depend on chance, and has p.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..errors import UserError
from .outputs import Scores
from .threshold import ClassThreshold, Threshold, calibrate, check_rate, conformal_rank

_ROUNDING = 1e-5  # of float32, accumulated over a search


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


def smoothed(known: Tensor, score: Tensor, generator: torch.Generator) -> Tensor:
    """Return p̃ (N,) of scores (N,) among known ones (n,), ties broken by chance; float64, in [0, 1)."""
    known, score = known.double().sort().values, score.double()
    below = torch.searchsorted(known, score)
    equal = torch.searchsorted(known, score, right=True) - below
    chance = torch.rand(len(score), generator=generator, dtype=torch.float64)
    return (below + chance * (1 + equal)) / (len(known) + 1)


def control_false_discoveries(p_values: Tensor | Sequence[float], rate: float) -> Tensor:
    """Return which images (N,) bool to call unknown, so that at most ``rate`` of these are known, on average.

    Benjamini and Hochberg (1995): of the p-values in order, all up to the largest p_(k) <= rate · k / N. With
    p-values that compare with the same known images the bound on the average share still holds, for they
    depend on each other positively (Bates et al. 2023, theorem 2); it is over held-out images and batch.

    >>> control_false_discoveries([0.01, 0.02, 0.04, 0.5], 0.1).tolist()
    [True, True, True, False]
    """
    p = torch.as_tensor(p_values, dtype=torch.float64)
    values, counts = torch.unique(p, return_counts=True)
    return p <= find_cut(values.tolist(), counts.tolist(), rate)


def find_cut(values: Sequence[float], counts: Sequence[int], rate: float) -> float:
    """Return the largest of ascending p-values that Benjamini and Hochberg reject; 0 if they reject none.

    ``counts``: how many images have each value, so that any number of images need no more memory than there
    are different values.
    """
    check_fdr(rate)
    cut, rank, total = 0.0, 0, sum(counts)
    for value, count in zip(values, counts, strict=True):
        rank += count
        if value <= rate * rank / total:
            cut = value
    return cut


def check_fdr(rate: float) -> float:
    """Return the share of false discoveries that is allowed, or raise UserError if it is none."""
    if not 0 < rate < 1:
        raise UserError(f"fdr must lie between 0 and 1, not {rate}")
    return rate


def _own_threshold(own: Tensor, false_reject: float) -> float:
    """Return t_own of an enrolled class, from its images that are taken for it; inf without any."""
    if not len(own):
        return float("inf")
    return calibrate(own, max(false_reject, 1 / (len(own) + 1))).value
