"""Logits in another order than the labels: noticed, and told apart from a network that knows nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gradmix.evaluation.class_order import accuracy_in_order, best_order, suspect_order


@pytest.mark.parametrize("seed", range(5))
def test_the_best_order_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    true, guess = rng.integers(0, 4, 30), rng.integers(0, 4, 30)
    best = max(accuracy_in_order(true, guess, order) for order in itertools.permutations(range(4)))
    assert accuracy_in_order(true, guess, best_order(true, guess, 4)) == best


def test_an_exchanged_order_is_suspected_and_a_bad_network_is_not() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 20, 1000)
    right = np.where(rng.random(1000) < 0.85, true, rng.integers(0, 20, 1000))
    exchanged = rng.permutation(20)[right]
    assert suspect_order(true, right, 20) is None
    assert suspect_order(true, exchanged, 20) == pytest.approx(np.mean(true == right))
    assert suspect_order(true, rng.integers(0, 20, 1000), 20) is None  # chance is chance in any order
