"""Has the world changed? A test that may be looked at after every image, and whose odds are honest.

**The bet.** If nothing has changed, the accepted images of a class look like the accepted held-out ones.
Each new image is ranked among all of its class before it, held-out ones and earlier images: with ties broken
by chance, its smoothed p-value is then uniform on [0, 1] and independent of those before it, exactly, however
few the images are. A gambler bets that it is not. The capital, 1 at first, is a *test martingale*: at fair
odds nobody wins on average, so by Ville's inequality

    P(the capital ever reaches c) ≤ 1/c      if nothing has changed,

for all images to come together. Odds of 340 to 1 are therefore seen at most once in 340 models that are used
without any change. (A fixed comparison set would not do: with 100 held-out images the p-values of a million
others share the chance deviation of these 100, and sooner or later every test finds it.)

**Which images.** Let t be the larger of the thresholds that apply to a class. Given t, the held-out scores
above t are a sample of the known scores above t, and so are those of new known images: so both sides are the
images with score > t that are taken for this class, and rejected images take no part. More images of one
class than before are no change; images of it that look less, or more, familiar are. So are unknown images
that are accepted. Enrolled classes have no held-out images, and take no part. Where none were held out, the
images are compared with those before them only. Images that come in an order of their own (frames of a video,
near duplicates) are a change, too: the test is of exchangeability.

**How much is bet** (composite jumper; Vovk et al. 2021, "Retrain or not retrain"). A gambler with rate ε has
the capital ∏(1 + ε(p_i − ½)); the *simple jumper* moves a share J of its capital between ε ∈ {−1, 0, 1}
before each image, so that it can change its mind; the composite one is the mean over J = 10⁻⁴, …, 1, of which
the last never bets: the capital is never below a fifth.
"""

from __future__ import annotations

import bisect
import math
import random
from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from .decision import Decision

JUMPS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
ALARM = 100.0  # odds from which on a change is reported: a false alarm in a hundred models
_RATES = np.array([-1.0, 0.0, 1.0])
_MOST_PER_CLASS = 4096  # scores kept for comparison; of more, a random half
_DIGITS = 6  # of scores, as files of answers have them


class Jumper:
    """The capital of a gambler who bets against p-values being uniform on [0, 1] and independent."""

    def __init__(self, jumps: Sequence[float] = JUMPS) -> None:
        self._jumps = np.asarray(jumps, dtype=np.float64)[:, None]
        # log capital of each jump size, and how it is shared between the rates (rows sum to 1)
        self._log = np.zeros(len(jumps))
        self._share = np.full((len(jumps), 3), 1 / 3)

    def bet(self, p_value: float) -> None:
        """Bet, and see the p-value."""
        share = ((1 - self._jumps) * self._share + self._jumps / 3) * (1 + _RATES * (p_value - 0.5))
        total = share.sum(axis=1)
        self._log += np.log(total)
        self._share = share / total[:, None]

    @property
    def log10(self) -> float:
        """The logarithm of the capital, to base 10."""
        highest = self._log.max()
        mean = float(np.exp(self._log - highest).mean())
        return float(highest + math.log(mean)) / math.log(10)


class DriftTest:
    """The running test for one model. Not thread safe; seeded, so the same images give the same odds."""

    def __init__(self, decision: Decision, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._jumper = Jumper()
        self.images = 0  # that took part
        self.highest_log10 = 0.0  # since the beginning
        threshold, known = decision.threshold, decision.known_scores
        self._above: dict[int, float] = {}
        self._seen: dict[int, array[float]] = {}
        if known is None:
            return
        for label in range(known.classes):
            if label in known.enrolled:
                continue
            own = threshold.by_class[label].value if threshold.by_class else threshold.value
            self._above[label] = round_score(max(threshold.value, own))
            self._seen[label] = array("d")
        if threshold.held_out:
            for score, label in zip(known.score.tolist(), known.label.tolist(), strict=True):
                score = round_score(score)
                if label in self._seen and score > self._above[label]:
                    self._add(label, score)

    def observe(self, scores: Iterable[float], labels: Iterable[int]) -> None:
        """Take new images into account, in this order: their scores, and the classes they are taken for."""
        for score, label in zip(scores, labels, strict=True):
            score = round_score(score)
            if label not in self._seen or not score > self._above[label]:
                continue
            seen = self._seen[label]
            below = bisect.bisect_left(seen, score)
            equal = bisect.bisect_right(seen, score) - below
            self._jumper.bet((below + self._random.random() * (1 + equal)) / (len(seen) + 1))
            self._add(label, score)
            self.images += 1
            self.highest_log10 = max(self.highest_log10, self._jumper.log10)

    def _add(self, label: int, score: float) -> None:
        """Keep a score for comparison; a random half of too many leaves the p-values to come uniform."""
        seen = self._seen[label]
        bisect.insort(seen, score)
        if len(seen) > _MOST_PER_CLASS:
            kept = sorted(self._random.sample(range(len(seen)), _MOST_PER_CLASS // 2))
            self._seen[label] = array("d", (seen[i] for i in kept))

    @property
    def log10(self) -> float:
        """The logarithm of the odds against "nothing has changed" as they are now, to base 10."""
        return self._jumper.log10

    @property
    def alarm(self) -> bool:
        """Whether the odds ever reached :data:`ALARM`: without a change, one model in a hundred."""
        return self.highest_log10 >= math.log10(ALARM)

    def describe(self) -> str:
        """Return what the test says in one line."""
        if not self.images:
            return "drift: no accepted image of a class with images to compare with"
        if not self.alarm:
            return f"drift: no sign of it in {self.images:,} accepted images"
        return (
            f"drift: odds of {format_odds(self.highest_log10)} to 1 that accepted images no longer look like "
            f"the known ones ({self.images:,} accepted images)"
        )


def round_score(score: float) -> float:
    """Return the score as files of answers have it; a rule that is the same for all keeps the test exact."""
    return round(score, _DIGITS)


def format_odds(log10: float) -> str:
    """Return odds that a person can read.

    >>> format_odds(2.5315), format_odds(4), format_odds(25.2)
    ('340', '10,000', '10^25')
    """
    if log10 >= 9:
        return f"10^{math.floor(log10)}"
    odds = 10**log10
    digits = max(0, math.floor(log10) - 1)
    return f"{math.floor(odds / 10**digits + 1e-9) * 10**digits:,}"
