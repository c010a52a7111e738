"""How a result deviates from the paper, in words: recipes, test images, rows, data sets, trials."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..declaration import Arm, Bench, Data, Experiment
from .presets import PAPER, Preset
from .recipes import NOT_OF_RESULTS, build_recipe

_NEVER_A_DEVIATION = ("seed", *NOT_OF_RESULTS)


@dataclass(frozen=True)
class Coverage:
    """How much of an experiment there is: its benches and rows, and how many trials the cells have."""

    benches: tuple[Bench, ...]
    arms: tuple[Arm, ...]
    trials: Collection[int]


def deviations_from_paper(
    declared: Experiment,
    coverage: Coverage,
    preset: Preset,
    fields: Mapping[str, Any],
    test_per_class: int | None,
) -> list[str]:
    """Say in words how a result differs from the paper's; ``fields`` are those changed for all rows."""
    said = ["the images are generated: nothing here says anything about the method"] * preset.generated
    if preset.name != "paper" or fields:
        said += _recipe_deviations(declared, coverage, preset, fields)
    if preset.operations is not None:
        said.append(
            f"length: as printed → {preset.operations / 1e12:g} TFLOP for every training, and the steps that "
            "they hold"
        )
    said += _describe_fewer_tests(declared.measure, preset, test_per_class)
    said += _describe_left_out(declared, coverage)
    said += [
        f"{bench.label}: {_describe_other_data(bench)}"
        for bench in coverage.benches
        if choose_data(bench, preset) != bench.data
    ]
    return said


def choose_data(bench: Bench, preset: Preset) -> Data:
    """Return the data that a bench trains and tests on in a preset."""
    return bench.small if preset.name in ("cpu", "decide") and bench.small is not None else bench.data


def _recipe_deviations(
    experiment: Experiment, coverage: Coverage, preset: Preset, fields: Mapping[str, Any]
) -> list[str]:
    """Return how the recipes differ from the paper's: "epochs: 600 → 5".

    The last declared row, the method in question, is asked first; others only for fields that it lacks. The
    user's own come last, for what they set themselves is no deviation.
    """
    found: dict[str, list[str]] = {}
    asked: set[str] = set() if preset.operations is None else {"epochs", "max_steps"} - fields.keys()
    declared = [arm for arm in coverage.arms if not arm.is_own]
    for arm in (*reversed(declared), *(arm for arm in coverage.arms if arm.is_own)):
        has: set[str] = set()
        for bench in coverage.benches:
            paper = build_recipe(experiment, bench, arm, PAPER).flat()
            here = build_recipe(experiment, bench, arm, preset, overrides=fields).flat()
            has |= here.keys()
            for name, value in here.items():
                if name not in asked and name not in _NEVER_A_DEVIATION and value != paper.get(name):
                    change = f"{name}: {_format_value(paper.get(name))} → {_format_value(value)}"
                    found.setdefault(change, []).append(bench.label)
        asked |= has
    return [
        change if len(where) == len(coverage.benches) else f"{change} ({', '.join(where)})"
        for change, where in found.items()
    ]


def limit_corrupted(preset: Preset, test_per_class: int | None) -> int | None:
    """Return how many test images per class are corrupted; None is all."""
    bounds = [n for n in (preset.corrupted_per_class, test_per_class) if n is not None]
    return min(bounds, default=None)


def _describe_fewer_tests(measure: str, preset: Preset, test_per_class: int | None) -> list[str]:
    said = [] if test_per_class is None else [f"test images: all → {test_per_class} a class"]
    corrupted = limit_corrupted(preset, test_per_class)
    if measure == "corruption" and corrupted is not None:
        said.append(f"corrupted test images: all → {corrupted} a class")
    if measure == "probe" and preset.probe != PAPER.probe:
        said.append(f"linear probe: {PAPER.probe} → {preset.probe}")
    return said


def _describe_left_out(declared: Experiment, coverage: Coverage) -> list[str]:
    said = []
    counts = sorted(count for count in coverage.trials if count)
    if counts and counts[0] < declared.trials:
        said.append(f"trials: {declared.trials} → {_format_range(counts)}")
    there = {bench.name for bench in coverage.benches}
    benches = [bench.label for bench in declared.benches if bench.name not in there]
    if benches:
        said.append(f"left out: {', '.join(benches)}")
    ran = {arm.name for arm in coverage.arms}
    # Rows without what only the user can give say so in the table.
    rows = [a.label for a in declared.arms if not (a.needs or a.beyond_paper) and a.name not in ran]
    if rows:
        said.append(f"rows left out: {', '.join(rows)}")
    return said


def _describe_other_data(bench: Bench) -> str:
    small = bench.small
    only = getattr(small, "only_trial", None)
    if only is not None:
        return f"every trial takes the split of trial {only}, with another seed"
    known_of = getattr(small, "known_of", None)
    return (
        f"the classes known in split 0 of {known_of}"
        if known_of
        else f"{getattr(small, 'source', '')} images"
    )


def _format_range(counts: Sequence[int]) -> str:
    """Format sorted numbers: "3", or "1 to 3"."""
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(str, value))
    return {None: "all", "": "none"}.get(value, str(value))
