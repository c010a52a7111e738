"""The Pareto threshold of C2AE: fits by hand and against scipy, and the level of least risk."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import genpareto
from torch import Tensor

from gradmix.detection.pareto import UpperTail, fit_pareto, pareto_threshold
from gradmix.errors import UserError
from tests.reference import pareto as reference


def draw(mean: float, spread: float, n: int, seed: int) -> Tensor:
    noise = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return mean + spread * noise


def test_the_fit_by_hand() -> None:
    """Mean 2, weighted mean (1·1 + ½·2 + 0·3)/3 = 2/3: ξ = 2 − 2/(2/3) = −1, σ = 2·2·(2/3)/(2/3) = 4."""
    assert fit_pareto(torch.tensor([3.0, 1.0, 2.0])) == pytest.approx((-1, 4))
    assert reference.fit([3.0, 1.0, 2.0]) == pytest.approx((-1, 4))


@pytest.mark.parametrize("shape", [-0.4, 0.0, 0.3])
def test_the_fit_finds_what_was_drawn(shape: float) -> None:
    drawn = genpareto.rvs(shape, scale=2.0, size=20_000, random_state=np.random.default_rng(0))
    found = fit_pareto(torch.from_numpy(drawn))
    assert found == pytest.approx((shape, 2.0), abs=0.08)  # deviations are about 0.01 to 0.03
    assert found == pytest.approx(reference.fit(drawn.tolist()), rel=1e-9)


def test_the_tail_against_the_slow_one() -> None:
    values = draw(0.0, 1.0, 300, 3)
    tail = UpperTail.fit(values)
    levels = torch.linspace(-4, 5, 91, dtype=torch.float64)
    wanted = [reference.exceed(values.tolist(), level) for level in levels.tolist()]
    assert tail.exceed(levels).tolist() == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert bool((tail.exceed(levels).diff() <= 1e-12).all())


@pytest.mark.parametrize(("gap", "chance"), [(1.0, 0.5), (3.0, 0.5), (3.0, 0.1), (8.0, 0.9)])
def test_the_level_has_the_least_risk(gap: float, chance: float) -> None:
    match, nonmatch = draw(0.0, 1.0, 200, 1), draw(gap, 1.0, 400, 2)
    level = pareto_threshold(match, nonmatch, chance)
    args = (match.tolist(), nonmatch.tolist())
    found = reference.risk(*args, level, chance)
    step = (float(nonmatch.max()) - float(match.min())) / 997
    others = [reference.risk(*args, float(match.min()) + step * i, chance) for i in range(998)]
    assert found <= min(others) + 1e-9


def test_a_larger_chance_of_the_unknown_lowers_the_level() -> None:
    match, nonmatch = draw(0.0, 1.0, 200, 1), draw(2.0, 1.0, 400, 2)
    levels = [pareto_threshold(match, nonmatch, chance) for chance in (0.1, 0.5, 0.9)]
    assert levels == sorted(levels, reverse=True)


def test_between_two_kinds_that_are_far_apart_lies_the_middle() -> None:
    match, nonmatch = torch.linspace(0, 1, 50), torch.linspace(9, 10, 50)
    level = pareto_threshold(match, nonmatch)
    assert level == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_equal_errors_have_a_tail_that_ends_there(value: float) -> None:
    tail = UpperTail.fit(torch.full((40,), value))
    found = tail.exceed(torch.tensor([value - 1, value, value + 0.1], dtype=torch.float64))
    assert found.tolist() == [1.0, 1.0, 0.0]
    level = pareto_threshold(torch.full((40,), value), torch.full((40,), value + 1))
    assert value < level < value + 1


def test_fewer_images_than_a_tail_are_refused() -> None:
    with pytest.raises(UserError, match="errors of at least 20 images, and there are 19; give more"):
        pareto_threshold(torch.rand(19), torch.rand(400))
