"""Where an experiment's numbers come from: family of splits, which of them are the same, seeds, versions."""

from __future__ import annotations

from collections.abc import Sequence

from ...data import duplicates
from ..declaration import Bench, OpenSplit
from ..engine.deviations import choose_data
from ..engine.results import ExperimentResult


def describe_family(result: ExperimentResult) -> list[str]:
    """Return one sentence on the splits; none if no bench splits its classes."""
    if not any(_takes_a_split(result, bench) for bench in result.benches):
        return []
    same = "".join(f"; the same classes: {one}" for one in find_repeated_splits(result))
    return [f"Splits: family {result.plan.family}{same}."]


def find_repeated_splits(result: ExperimentResult) -> list[str]:
    """Return the finished trials that share known and unknown classes: only their seeds differ."""
    said = []
    for bench in result.benches:
        data = choose_data(bench, result.plan.preset)
        if not isinstance(data, OpenSplit):
            continue
        ran = sorted({trial.trial for trial in result.trials if trial.bench == bench.name})
        groups = [ran]
        if data.only_trial is None:
            groups = _group_equals(ran, duplicates(data.protocol, result.plan.family))
        said += [
            f"{bench.label}, trials {', '.join(map(str, same[:-1]))} and {same[-1]}"
            for same in groups
            if len(same) > 1
        ]
    return said


def describe_seeds(result: ExperimentResult) -> str:
    return ", ".join(map(str, sorted({trial.seed for trial in result.trials}))) or "none yet"


def describe_splits(result: ExperimentResult) -> str:
    """Return "Split hashes: CIFAR10 …, …. " in the order of trials; empty without splits."""
    said = []
    for bench in result.benches:
        hashes = {t.trial: t.split_hash for t in result.trials if t.bench == bench.name and t.split_hash}
        if hashes:
            listed = dict.fromkeys(hashes[number] for number in sorted(hashes))
            said.append(f"{bench.label} {', '.join(map(str, listed))}")
    return f"Split hashes: {'; '.join(said)}. " if said else ""


def describe_versions(result: ExperimentResult) -> str:
    """Return the program versions; all of them if trials were made with different ones."""
    versions = [", ".join(f"{name} {value}" for name, value in one.items()) for one in result.versions]
    if len(versions) > 1:
        return f"they differ between trials: {'; or '.join(versions)}"
    return versions[0] if versions else "none yet"


def _group_equals(numbers: Sequence[int], same: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Group equal numbers; ``same`` are all pairs (a, b), a < b, of equals.

    >>> _group_equals([0, 1, 2, 4], [(0, 1), (2, 3), (2, 4), (3, 4)])
    [[0, 1], [2, 4]]
    """
    groups: dict[int, list[int]] = {}
    for number in numbers:
        first = min([number, *(a for a, b in same if b == number and a in numbers)])
        groups.setdefault(first, []).append(number)
    return list(groups.values())


def _takes_a_split(result: ExperimentResult, bench: Bench) -> bool:
    data = choose_data(bench, result.plan.preset)
    return isinstance(data, OpenSplit) or data.known_of is not None
