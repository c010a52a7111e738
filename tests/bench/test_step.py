"""The benchmark measures what it says, and its ratios are to the CutMix step of the same round."""

from __future__ import annotations

from gradmix.bench.step import REFERENCE, _summary, bench_step


def test_every_contestant_is_measured_against_cutmix() -> None:
    rows = bench_step("resnet8_16", "half", 16, 8, ("conv4_2",), rounds=2)
    assert [row.name for row in rows] == ["plain (no mixing)", REFERENCE, "GradMix", "GradMix, symmetric"]
    assert all(row.seconds > 0 and row.low <= row.ratio <= row.high for row in rows)
    assert rows[1].ratio == 1.0


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was twice as slow in the second round; the ratio does not see it.
    row = _summary("x", [3.0, 6.0, 3.0], [2.0, 4.0, 2.0])
    assert (row.seconds, row.ratio, row.low, row.high) == (3.0, 1.5, 1.5, 1.5)
