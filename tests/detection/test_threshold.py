from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradmix.detection import calibrate, conformal_threshold
from gradmix.detection.threshold import conformal_rank
from gradmix.errors import UserError


def test_the_value_is_the_promised_order_statistic():
    scores = torch.arange(1.0, 100.0)[torch.randperm(99, generator=torch.Generator().manual_seed(0))]
    assert conformal_threshold(scores, 0.01) == 1
    assert conformal_threshold(scores, 0.05) == 5
    assert conformal_threshold(scores, 0.29) == 29  # 0.29 * 100 rounds to 28.999…
    assert calibrate(scores, 0.05).accepts(torch.tensor([4.0, 5.0])).tolist() == [False, True]


@given(st.integers(1, 500), st.integers(1, 999))
def test_the_rank_is_the_textbooks(n, thousandths):
    """⌊α(n+1)⌋-th smallest score = ⌈(n+1)(1−α)⌉-th smallest nonconformity −s, in whole numbers."""
    from_above = -((n + 1) * (1000 - thousandths) // -1000)
    assert conformal_rank(n, thousandths / 1000) == n + 1 - from_above


@given(st.integers(1, 200), st.floats(0.001, 0.999))
def test_needed_is_where_the_guarantee_starts(n, false_reject):
    threshold = calibrate(torch.zeros(n), false_reject)
    assert threshold.guaranteed == (n >= threshold.needed)
    assert threshold.value == (0 if threshold.guaranteed else -math.inf)


@pytest.mark.parametrize(("n", "false_reject"), [(19, 0.05), (50, 0.1), (200, 0.05), (33, 0.2)])
def test_coverage_by_simulation(n, false_reject):
    """Over draws of held-out scores, the chance to reject a known image is ⌊α(n+1)⌋/(n+1) ≤ α.

    For uniform scores the chance given the threshold is the threshold itself.
    """
    g = torch.Generator().manual_seed(n)
    draws = 2000
    rejected = torch.tensor(
        [conformal_threshold(torch.rand(n, generator=g), false_reject) for _ in range(draws)]
    )
    exact = math.floor(false_reject * (n + 1) + 1e-9) / (n + 1)
    assert exact <= false_reject
    noise = 4 * rejected.std().item() / math.sqrt(draws)
    assert rejected.mean().item() == pytest.approx(exact, abs=noise)


DRAWS = 200


def binomial_bound(rate: float, draws: int = DRAWS) -> float:
    """Three standard errors above ``rate``: what ``draws`` independent yes-or-no trials may show."""
    return rate + 3 * math.sqrt(rate * (1 - rate) / draws)


@pytest.mark.parametrize("false_reject", [0.02, 0.05, 0.1, 0.3])
def test_200_draws_reject_one_new_image_no_more_often_than_promised(false_reject):
    """Each draw: 120 held-out scores of a skewed distribution with ties, and one new image."""
    g = torch.Generator().manual_seed(1)
    rejected = 0
    for _ in range(DRAWS):
        scores = (torch.randn(121, generator=g).exp() * 8).round() / 8
        rejected += int(not calibrate(scores[:120], false_reject).accepts(scores[120:]))
    assert rejected / DRAWS <= binomial_bound(false_reject)


def test_200_draws_per_class_keep_the_promise_for_every_class_taken_for():
    """Three classes of different difficulty, one image in five taken for another class."""
    false_reject, classes = 0.1, 3
    g = torch.Generator().manual_seed(2)
    rejected, overall, new = torch.zeros(classes), torch.zeros(classes), torch.zeros(classes)
    for _ in range(DRAWS):
        truth = torch.randint(classes, (400,), generator=g)
        taken_for = torch.where(torch.rand(400, generator=g) < 0.2, (truth + 1) % classes, truth)
        scores = torch.randn(400, generator=g) - 2.0 * taken_for - 0.5 * (taken_for != truth)
        held, test = slice(0, 200), slice(200, 400)
        threshold = calibrate(scores[held], false_reject, labels=taken_for[held], num_classes=classes)
        assert all(c.guaranteed for c in threshold.by_class)
        alike = calibrate(scores[held], false_reject)
        for c in range(classes):  # one new image of each class a draw: independent trials
            place = int((taken_for[test] == c).nonzero()[0]) + 200
            one = slice(place, place + 1)
            rejected[c] += int(not threshold.accepts(scores[one], taken_for[one]))
            overall[c] += int(not alike.accepts(scores[one]))
            new[c] += 1
    assert float((rejected / new).max()) <= binomial_bound(false_reject)
    assert float(overall[2] / new[2]) > binomial_bound(false_reject)  # one threshold for all cannot


def test_a_class_with_too_few_images_takes_the_threshold_of_all():
    scores, labels = torch.arange(1.0, 101.0), torch.zeros(100, dtype=torch.long)
    labels[:5] = 1
    threshold = calibrate(scores, 0.1, labels=labels, num_classes=3)
    zero, one, two = threshold.by_class
    assert (zero.guaranteed, one.guaranteed, two.guaranteed) == (True, False, False)
    assert (zero.n, one.n, two.n) == (95, 5, 0)
    assert one.value == two.value == threshold.value == 10
    assert zero.value == 14  # the 9th of 6 … 100
    assert threshold.of(torch.tensor([0, 1])).tolist() == [14, 10]
    accepted = threshold.accepts(torch.tensor([12.0, 12.0]), torch.tensor([0, 1]))
    assert accepted.tolist() == [False, True]
    with pytest.raises(UserError, match="differs from class to class"):
        threshold.accepts(torch.tensor([12.0]))


def test_images_of_the_training_promise_nothing():
    assert calibrate(torch.rand(100), 0.1).promised
    assert not calibrate(torch.rand(100), 0.1, held_out=False).promised
    assert not calibrate(torch.rand(5), 0.1).promised


def test_the_rate_of_the_long_run_lies_in_its_range():
    g = torch.Generator().manual_seed(3)
    inside = 0
    for _ in range(DRAWS):
        threshold = calibrate(torch.rand(150, generator=g), 0.1)
        low, high = threshold.rate_range(0.9)
        inside += low <= threshold.value <= high  # uniform scores: the rate is the threshold
    assert abs(inside / DRAWS - 0.9) <= 3 * math.sqrt(0.9 * 0.1 / DRAWS)
    assert calibrate(torch.rand(3), 0.1).rate_range() == (0.0, 0.0)


def test_ties_reject_fewer_never_more():
    scores = torch.tensor([0.0] * 50 + [1.0] * 49)
    assert calibrate(scores, 0.1).accepts(scores).all()


def test_the_spread_is_the_standard_deviation_of_the_scores():
    assert calibrate(torch.tensor([1.0, 3.0, 1.0, 3.0]), 0.3).spread == 1.0


def test_mistakes_are_named():
    with pytest.raises(UserError, match="between 0 and 1, not 5"):
        calibrate(torch.ones(3), 5)
    with pytest.raises(UserError, match="hold some images out"):
        calibrate(torch.ones(0), 0.05)
    with pytest.raises(UserError, match="NaN"):
        calibrate(torch.tensor([math.nan]), 0.05)
