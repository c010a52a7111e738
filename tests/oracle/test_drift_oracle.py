"""MAPIE's martingale and ours, given the same p-values; and its p-values and ours, given the same scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gradmix.detection.drift import Jumper
from tests.reference.smoothed_p import smoothed

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("jump", [0.001, 0.01, 0.3])
@pytest.mark.parametrize("power", [1, 2])  # uniform, and not
def test_the_capital_is_that_of_mapie(jump: float, power: int) -> None:
    from mapie.exchangeability_testing import OnlineMartingaleTest

    peer, ours = OnlineMartingaleTest(jump_size=jump), Jumper((jump,))
    for p in np.random.default_rng(power).random(400) ** power:
        expected = peer.update_simple_jumper_martingale(float(p))
        ours.bet(float(p))
        assert ours.log10 == pytest.approx(math.log10(expected), abs=1e-9)


def test_the_p_values_are_those_of_mapie() -> None:
    """Its scores are of nonconformity, ours of conformity; its chance is drawn as ours, one per score."""
    from mapie.exchangeability_testing import OnlineMartingaleTest

    known = np.random.default_rng(0).integers(0, 9, 40).astype(float)
    new = np.random.default_rng(1).integers(-1, 10, 25).astype(float)
    chance = torch.rand(len(new), generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    ours = smoothed(torch.from_numpy(known), torch.from_numpy(new), torch.Generator().manual_seed(5))
    peer = OnlineMartingaleTest()

    class Chance:
        """Stands for the peer's generator."""

        drawn = iter(chance.tolist())

        def uniform(self) -> float:
            return next(self.drawn)

    peer.rng = Chance()
    expected = [peer.compute_p_value(-score, -known) for score in new]
    assert ours.tolist() == pytest.approx(expected, abs=1e-12)
