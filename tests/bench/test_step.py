"""The benchmark measures what it says, and its ratios are to the CutMix step of the same round."""

from __future__ import annotations

from gradmix.bench.rounds import summarize, take_turns
from gradmix.bench.step import CONTESTANTS, NETWORK, StepSettings, bench_flops, bench_parts, bench_step

SMALL = StepSettings("resnet8_16", "half", 16, 8, ("conv4_2",))


def test_every_contestant_is_measured_against_cutmix() -> None:
    rows = bench_step(SMALL, rounds=2)
    assert [row.name for row in rows] == [*CONTESTANTS, NETWORK]
    assert all(row.seconds > 0 and row.low <= row.ratio <= row.high for row in rows)
    assert rows[1].ratio == 1.0


def test_parts_are_measured_against_the_whole_step() -> None:
    rows = bench_parts(SMALL, rounds=1)
    assert rows[0].name == "whole step"
    assert rows[0].ratio == 1.0
    assert {"two views", "clean losses", "mixed loss", "maps", "mixing", "optimiser"} < {r.name for r in rows}


def test_flops_are_those_of_three_views_each_way() -> None:
    once = bench_flops(SMALL, rounds=1, side=64)
    twice = bench_flops(StepSettings("resnet8_16", "half", 16, 16, ("conv4_2",)), rounds=1, side=64)
    assert twice.operations == 2 * once.operations > 0
    assert once.network > 0
    assert once.matmul > 0


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was twice as slow in the second round; the ratio does not see it.
    row = summarize("x", [3.0, 6.0, 3.0], [2.0, 4.0, 2.0])
    assert (row.seconds, row.ratio, row.low, row.high) == (3.0, 1.5, 1.5, 1.5)


def test_contestants_take_turns_and_the_first_round_does_not_count() -> None:
    called: list[str] = []
    rows = take_turns({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, "a", rounds=3)
    assert "".join(called) == "abbabaab"  # every one as often first, and as often after each other
    assert [row.name for row in rows] == ["a", "b"]
