"""p <= α and the threshold are one decision, and p-values keep what they promise."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradmix.detection import (
    MLS,
    Decision,
    EnrolledScores,
    KnownScores,
    Scores,
    calibrate,
    conformal_p,
    control_false_discoveries,
    describe_p,
)
from gradmix.detection.false_discoveries import find_cut
from gradmix.detection.threshold import conformal_rank, needed_images
from gradmix.errors import UserError
from tests.reference.smoothed_p import smoothed

CLASSES = 3
RATES = st.one_of(
    st.sampled_from([0.29, 0.05, 0.1, 1 / 3, 0.7 - 0.4, 0.1 + 0.2, 1 - 0.71, 1e-9, 1 - 1e-9]),
    st.floats(1e-6, 1 - 1e-6),
    st.integers(1, 99).map(lambda percent: percent / 100),
)
GRID = st.sampled_from([-math.inf, -2.0, 0.0, 0.1, 0.5, 1.0, 1.0 + 2**-40, 7.0])  # so that many are equal
SCORES = st.lists(st.tuples(GRID, st.integers(0, CLASSES - 1)), max_size=60)


def scores_of(pairs: list[tuple[float, int]]) -> Scores:
    value = torch.tensor([v for v, _ in pairs], dtype=torch.float64)
    return Scores(value, torch.tensor([c for _, c in pairs], dtype=torch.int64))


@given(
    SCORES,
    SCORES,
    RATES,
    st.booleans(),
    st.booleans(),
    st.dictionaries(st.integers(0, CLASSES - 1), st.lists(GRID, max_size=12), max_size=2),
)
@settings(max_examples=150, deadline=None)
@example([(float(i), 0) for i in range(99)], [(28.0, 0), (27.5, 0), (29.0, 0)], 0.29, False, True, {})
def test_unknown_is_where_p_is_at_most_the_rate(known, new, rate, per_class, held_out, enrolled):
    """For ties, classes with too few images, enrolled classes, no images at all, and thresholds of -inf."""
    own = {c: EnrolledScores(len(v) + 1, torch.tensor(v, dtype=torch.float64)) for c, v in enrolled.items()}
    kept = KnownScores.of(scores_of(known), CLASSES, held_out, own) if known else KnownScores.none(CLASSES)
    decision = Decision(MLS(), kept.threshold(rate, per_class), known=kept)
    found = decision.decide_scores(scores_of(new))
    assert torch.equal(found.p_value <= rate, found.label == -1)
    assert bool(((found.p_value > 0) & (found.p_value <= 1)).all())
    assert decision.threshold.held_out == (held_out and bool(known))


@given(SCORES.filter(len), RATES, st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_threshold_is_that_of_calibrate(known, rate, per_class):
    scores = scores_of(known)
    expected = calibrate(scores.score, rate, labels=scores.label if per_class else None, num_classes=CLASSES)
    assert KnownScores.of(scores, CLASSES).threshold(rate, per_class) == expected or math.isnan(
        expected.spread
    )


@given(st.lists(GRID, max_size=40), st.lists(GRID, min_size=1, max_size=10))
def test_p_counts_what_is_no_more_familiar(known, new):
    p = conformal_p(torch.tensor(known, dtype=torch.float64), torch.tensor(new, dtype=torch.float64))
    assert p.tolist() == [(1 + sum(k <= s for k in known)) / (len(known) + 1) for s in new]


@given(st.integers(1, 300), RATES)
def test_rank_and_needed_are_of_the_same_comparison(n, rate):
    rank = conformal_rank(n, rate)
    assert rank == max(r for r in range(n + 1) if r / (n + 1) <= rate)
    assert (rank >= 1) == (n >= needed_images(rate))


def test_per_class_p_values_compare_with_the_class() -> None:
    known = scores_of([(float(i), 0) for i in range(9)] + [(100.0 + i, 1) for i in range(9)] + [(50.0, 2)])
    kept = KnownScores.of(known, CLASSES)
    new = scores_of([(3.0, 0), (103.0, 1), (50.0, 2)])
    assert kept.p_values(new, kept.threshold(0.1)).tolist() == [5 / 20, 15 / 20, 11 / 20]
    # The third class has one image, too few for a rate of 0.1: it is compared with all.
    assert kept.p_values(new, kept.threshold(0.1, per_class=True)).tolist() == [5 / 10, 5 / 10, 11 / 20]


def test_an_enrolled_class_is_judged_by_its_own_images_too() -> None:
    known = scores_of([(float(i), 0) for i in range(9)])
    own = {1: EnrolledScores(4, torch.tensor([1.5, 2.5, 3.5], dtype=torch.float64))}
    kept = KnownScores.of(known, 2, enrolled=own)
    p = kept.p_values(scores_of([(2.0, 0), (2.0, 1), (1.0, 1), (9.0, 1)]), kept.threshold(0.2))
    # 2.0: 3 of 9 known images, 1 of 3 own. 1.0: 2 of 9, and less familiar than all own: 3/10 counts.
    assert p.tolist() == [4 / 10, 2 / 4, 3 / 10, 1.0]


def rank_of_known(draws: int, n: int, generator: torch.Generator, ties: bool) -> Tensor:
    """Draw n + 1 known scores, and return the p-value of the last among the others, for each draw."""
    drawn = torch.rand(draws, n + 1, generator=generator, dtype=torch.float64)
    drawn = (drawn * 5).floor() if ties else drawn
    return torch.cat([conformal_p(row[:-1], row[-1:]) for row in drawn])


@pytest.mark.parametrize("ties", [False, True])
def test_a_known_image_is_rarely_called_unusual(ties: bool) -> None:
    """P(p <= α) <= α for every α at once; without ties it is ⌊α(n+1)⌋/(n+1). Within 4 standard errors."""
    draws, n = 4000, 19
    p = rank_of_known(draws, n, torch.Generator().manual_seed(1), ties)
    for rate in (0.05, 0.1, 0.25, 0.5, 0.9):
        exact = conformal_rank(n, rate) / (n + 1)
        noise = 4 * math.sqrt(exact * (1 - exact) / draws)
        share = float((p <= rate).double().mean())
        assert share <= exact + noise
        if not ties:
            assert share >= exact - noise


def test_per_class_a_known_image_is_rarely_called_unusual() -> None:
    """P(p <= α | taken for c) <= α for both classes, within 4 standard errors."""
    generator, draws, n, rate = torch.Generator().manual_seed(6), 2000, 60, 0.1
    unusual, taken = [0, 0], [0, 0]
    for _ in range(draws):
        label = (torch.rand(n + 1, generator=generator) < 0.3).long()
        score = torch.randn(n + 1, generator=generator, dtype=torch.float64) * (1 + label) - 3 * label
        kept = KnownScores.of(Scores(score[:n], label[:n]), 2)
        p = kept.p_values(Scores(score[n:], label[n:]), kept.threshold(rate, per_class=True))
        taken[int(label[n])] += 1
        unusual[int(label[n])] += bool(p <= rate)
    for count, number in zip(unusual, taken, strict=True):
        assert count / number <= rate + 4 * math.sqrt(rate * (1 - rate) / number)


def test_smoothed_p_values_are_uniform_with_ties() -> None:
    """Kolmogorov's distance of 4,000 draws is below 1.95/√4000 with probability 0.999."""
    generator, draws = torch.Generator().manual_seed(2), 4000
    drawn = (torch.rand(draws, 8, generator=generator, dtype=torch.float64) * 3).floor()
    p = torch.cat([smoothed(row[:-1], row[-1:], generator) for row in drawn]).sort().values
    steps = torch.arange(draws + 1, dtype=torch.float64) / draws
    distance = torch.maximum(p - steps[:-1], steps[1:] - p).max()
    assert float(distance) < 1.95 / math.sqrt(draws)


def test_benjamini_and_hochberg_by_hand() -> None:
    """Table 1 of their paper: at 0.05 the first four of 15 are rejected."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    assert control_false_discoveries(p, 0.05).tolist() == [True] * 4 + [False] * 11
    assert not control_false_discoveries([0.2, 0.9], 0.1).any()
    assert control_false_discoveries([], 0.1).tolist() == []
    with pytest.raises(UserError, match="fdr must lie between 0 and 1, not 1"):
        control_false_discoveries([0.1], 1)


@given(st.lists(st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.4, 1.0]), max_size=40), st.floats(0.01, 0.99))
def test_the_cut_is_that_of_the_sorted_list(p, rate):
    ordered = sorted(p)
    passing = [v for k, v in enumerate(ordered, start=1) if v <= rate * k / len(ordered)]
    counts = {v: p.count(v) for v in sorted(set(p))}
    assert find_cut(list(counts), list(counts.values()), rate) == (passing[-1] if passing else 0.0)


def test_of_those_called_unknown_few_are_known() -> None:
    """The mean share over draws of held-out images and batch, within 4 standard errors of 2,000 draws.

    The theorem's bound is rate × (share of known images in the batch) = 0.1 × 0.8.
    """
    generator, draws, rate = torch.Generator().manual_seed(3), 2000, 0.1
    shares, found = [], 0
    for _ in range(draws):
        held_out = torch.randn(300, generator=generator, dtype=torch.float64)
        known = torch.randn(80, generator=generator, dtype=torch.float64)
        unknown = torch.randn(20, generator=generator, dtype=torch.float64) - 3.5
        rejected = control_false_discoveries(conformal_p(held_out, torch.cat([known, unknown])), rate)
        shares.append(int(rejected[:80].sum()) / max(1, int(rejected.sum())))
        found += int(rejected[80:].sum())
    share = torch.tensor(shares, dtype=torch.float64)
    assert float(share.mean()) <= 0.8 * rate + 4 * float(share.std()) / math.sqrt(draws)
    assert found > 0.7 * 20 * draws  # and most unknown images are found


def test_rounding_of_scores_computed_again_changes_no_answer() -> None:
    exact = KnownScores.of(scores_of([(float(i), i % 2) for i in range(40)]), 2)
    threshold = exact.threshold(0.1, per_class=True)
    noise = torch.randn(40, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 1e-7
    again = KnownScores(exact.score + noise, exact.label, 2).snap_to(threshold)
    new = scores_of([(c.value, label) for label, c in enumerate(threshold.by_class)])
    found = Decision(MLS(), threshold, known=again).decide_scores(new)
    assert torch.equal(found.p_value <= 0.1, found.label == -1)
    assert found.label.tolist() == [0, 1]


def test_a_decision_can_have_another_rate() -> None:
    kept = KnownScores.of(scores_of([(float(i), 0) for i in range(99)]), 1)
    decision = Decision(MLS(), kept.threshold(0.05), known=kept)
    assert decision.at_rate(0.29).threshold == kept.threshold(0.29)
    assert not decision.at_rate(0.001).threshold.guaranteed
    with pytest.raises(UserError, match="false_reject must lie between 0 and 1, not 2"):
        decision.at_rate(2)
    with pytest.raises(UserError, match="keeps no scores of known images"):
        Decision(MLS(), kept.threshold(0.05)).at_rate(0.1)


def test_words() -> None:
    assert describe_p(0.2) == "only 1 in 5 known images looks as unusual (p = 0.2)"
    assert describe_p(0.201) == "20 of 100 known images look as unusual (p = 0.2)"
    assert describe_p(0.0001) == "only 1 in 10,000 known images looks as unusual (p = 0.0001)"
    assert "has none to compare with" in describe_p(math.nan)


def test_few_enrolled_images_lower_the_threshold_to_the_least_of_them() -> None:
    """By hand: 39 known scores 1 … 39 at rate 0.05 give 2; three images of class 1 allow a rate of 1/4."""
    scores = Scores(torch.arange(1.0, 40.0).double(), torch.zeros(39, dtype=torch.int64))
    own = EnrolledScores(3, torch.tensor([0.5, 1.5, 3.0], dtype=torch.float64))
    threshold = KnownScores.of(scores, 2, enrolled={1: own}).threshold(0.05)
    assert threshold.of(torch.tensor([0, 1])).tolist() == [2.0, 0.5]
