"""A step of every method and stage is timed, next to cross-entropy, with the ratio that it should have."""

from __future__ import annotations

import pytest

from gradmix.bench.methods import REFERENCE, bench_methods
from gradmix.bench.step import StepSettings
from gradmix.errors import UserError

SMALL = StepSettings("resnet8_16", "half", 16, 8, ("conv4_2",))


def test_the_ratio_is_to_cross_entropy_and_the_prediction_by_passes() -> None:
    reference, simclr = bench_methods(SMALL, rounds=1, names=["ce+ssl"])
    assert (reference.timing.name, reference.timing.ratio, reference.predicted) == (REFERENCE, 1.0, 1.0)
    assert (simclr.timing.name, simclr.predicted) == ("ce+ssl", 2.0)
    assert simclr.timing.seconds > 0


def test_a_misspelt_method() -> None:
    with pytest.raises(UserError, match="no method 'gradmx'"):
        bench_methods(SMALL, rounds=1, names=["gradmx"])


@pytest.mark.slow
def test_every_method_has_a_row_for_each_stage() -> None:
    names = {row.timing.name for row in bench_methods(SMALL, rounds=1)}
    assert {"gradmix", "moco", "arpl"} <= names
    assert {"proser, classify", "proser, placeholders"} <= names
