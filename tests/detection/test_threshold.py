from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradmix.detection import calibrate, conformal_threshold
from gradmix.errors import UserError


def test_the_value_is_the_promised_order_statistic():
    scores = torch.arange(1.0, 100.0)[torch.randperm(99, generator=torch.Generator().manual_seed(0))]
    assert conformal_threshold(scores, 0.01) == 1
    assert conformal_threshold(scores, 0.05) == 5
    assert conformal_threshold(scores, 0.29) == 29  # 0.29 * 100 rounds to 28.999…
    assert calibrate(scores, 0.05).accepts(torch.tensor([4.0, 5.0])).tolist() == [False, True]


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


def test_ties_reject_fewer_never_more():
    scores = torch.tensor([0.0] * 50 + [1.0] * 49)
    assert calibrate(scores, 0.1).accepts(scores).all()


def test_mistakes_are_named():
    with pytest.raises(UserError, match="between 0 and 1, not 5"):
        calibrate(torch.ones(3), 5)
    with pytest.raises(UserError, match="hold some images out"):
        calibrate(torch.ones(0), 0.05)
    with pytest.raises(UserError, match="NaN"):
        calibrate(torch.tensor([math.nan]), 0.05)
