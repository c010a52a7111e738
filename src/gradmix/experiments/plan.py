"""From a declaration to the list of trials: which trainings there will be, under which keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UserError, choose
from ..training import Recipe
from .declaration import Arm, Bench, Data, Experiment
from .images import identity, split_of
from .presets import Preset
from .recipes import check_overrides, departures, digest, recipe_for, training_key

_TEST_WHEN_CUT_SHORT = 8  # images a class: after --max-steps there is nothing to measure exactly


@dataclass(frozen=True)
class Trial:
    """One cell of the experiment in one trial: train ``recipe`` (or find it trained), then measure."""

    bench: Bench
    arm: Arm
    number: int
    data: Data
    recipe: Recipe
    training: str
    key: str
    split_hash: str | None = None

    @property
    def name(self) -> str:
        return f"{self.bench.name}.{self.arm.name}.{self.number}"


@dataclass(frozen=True)
class Plan:
    """Everything that is to be done. ``cuts`` says in words how it is less than the paper's."""

    experiment: Experiment
    preset: Preset
    family: str
    benches: tuple[Bench, ...]
    arms: tuple[Arm, ...]
    trials: tuple[Trial, ...]
    cuts: tuple[str, ...]
    max_steps: int | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def test_per_class(self) -> int | None:
        return _TEST_WHEN_CUT_SHORT if self.max_steps else self.preset.test_per_class

    @property
    def folder(self) -> str:
        """Where results go, under the root: results of two steps must not be taken for the real ones."""
        steps = f"-{self.max_steps}-steps" if self.max_steps else ""
        return f"{self.experiment.name}-{self.preset.name}{steps}"

    def trainings(self) -> dict[str, Trial]:
        """Each distinct training, by key, with the first trial that needs it."""
        found: dict[str, Trial] = {}
        for trial in self.trials:
            found.setdefault(trial.training, trial)
        return found


def make_plan(
    experiment: Experiment,
    preset: Preset,
    *,
    protocols: Sequence[str] = (),
    methods: Sequence[str] = (),
    own: Sequence[Arm] = (),
    trials: Sequence[int] | None = None,
    family: str = "arpl_2020",
    max_steps: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Plan:
    """``protocols`` and ``methods`` choose benches and arms by name (none given: all that the preset has);
    ``own`` adds arms; ``trials`` are trial numbers; ``overrides`` are recipe fields for all arms."""
    cut = experiment.cpu if preset.name == "cpu" else None
    declared = experiment.benches
    if preset.name != "paper":
        small = [replace(bench, label=bench.small_label or bench.label) for bench in declared]
        experiment = replace(experiment, benches=tuple(small))
    benches = _chosen("protocol", experiment.benches, protocols, cut.benches if cut else None)
    keep = cut.arms if cut else None
    for arm in own:
        if arm.name in {declared.name for declared in experiment.arms}:
            raise UserError(f"{experiment.name} has a row '{arm.name}' already; give your file another name")
    arms = (*_chosen_arms(experiment, methods, keep, bool(own)), *own)
    numbers = tuple(range(_trial_count(experiment, preset))) if trials is None else tuple(trials)
    fields = dict(overrides or {})
    check_overrides(fields, arms)
    if max_steps is not None:
        fields["max_steps"] = max_steps
    made = tuple(
        _trial(experiment, bench, arm, number, preset, family, fields, max_steps)
        for bench in benches
        for number in numbers
        for arm in arms
        if arm.implemented and _has_what_it_needs(arm, preset, fields, asked=arm.name in methods)
    )
    cuts = departures(experiment, benches, preset, fields) if preset.name != "paper" or fields else []
    if len(numbers) < experiment.trials:
        cuts.append(f"trials: {experiment.trials} → {len(numbers)}")
    chosen = {bench.name for bench in benches}
    left = [bench.label for bench in declared if bench.name not in chosen]
    if left:
        cuts.append(f"left out: {', '.join(left)}")
    cuts += [
        f"{bench.label}: {_other_data(bench)}" for bench in benches if _data(bench, preset) != bench.data
    ]
    if preset.generated:
        cuts.insert(0, "the images are generated: nothing here says anything about the method")
    return Plan(experiment, preset, family, benches, arms, made, tuple(cuts), max_steps)


def steps_of(recipe: Recipe, images: int) -> int:
    """How many steps a training on so many images takes."""
    s = recipe.training
    per_epoch = images // min(s.batch_size, images)
    return min(s.epochs * per_epoch, s.max_steps or s.epochs * per_epoch)


def _trial(
    experiment: Experiment,
    bench: Bench,
    arm: Arm,
    number: int,
    preset: Preset,
    family: str,
    fields: Mapping[str, Any],
    max_steps: int | None,
) -> Trial:
    data = _data(bench, preset)
    recipe = recipe_for(experiment, bench, arm, preset, number, fields)
    split = split_of(data, number, family)
    told = identity(data, number, family) | {"generated": preset.generated}
    training = training_key(recipe, told)
    tested = {
        "training": training,
        "k": recipe.detection.k,
        "score_normalize": recipe.detection.score_normalize,
        "measure": experiment.measure,
        "split": split.hash if split else None,
        "tests": [preset.test_per_class, preset.corrupted_per_class, preset.probe, max_steps],
        "out": list(experiment.out),
    }
    return Trial(bench, arm, number, data, recipe, training, digest(tested), split.hash if split else None)


def _has_what_it_needs(arm: Arm, preset: Preset, fields: Mapping[str, Any], asked: bool) -> bool:
    given = not arm.needs or arm.needs in fields or arm.needs in preset.fields
    if asked and not given:
        raise UserError(f"{arm.label} needs --{arm.needs.replace('_', '-')}; give it, or leave the row out")
    return given


def _data(bench: Bench, preset: Preset) -> Data:
    return bench.small if preset.name == "cpu" and bench.small is not None else bench.data


def _other_data(bench: Bench) -> str:
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


def _trial_count(experiment: Experiment, preset: Preset) -> int:
    count = experiment.cpu.trials if preset.name == "cpu" else experiment.trials
    return min(count, preset.most_trials or count)


def _chosen(
    kind: str, benches: tuple[Bench, ...], asked: Sequence[str], default: tuple[str, ...] | None
) -> tuple[Bench, ...]:
    names = [bench.name for bench in benches]
    wanted = [choose(kind, name, names) for name in asked] or default or names
    return tuple(bench for bench in benches if bench.name in wanted)


def _chosen_arms(
    experiment: Experiment, asked: Sequence[str], default: tuple[str, ...] | None, has_own: bool
) -> tuple[Arm, ...]:
    if not asked:
        wanted: Sequence[str] = default or [arm.name for arm in experiment.arms]
        return tuple(arm for arm in experiment.arms if arm.name in wanted)
    names = [arm.name for arm in experiment.arms]
    for name in asked:
        choose("method", name, names)
    absent = [arm for arm in experiment.arms if arm.name in asked and not arm.implemented]
    if absent and not has_own and len(absent) == len(set(asked)):
        raise UserError(f"{absent[0].label} is not yet implemented; only the paper's numbers are there")
    return tuple(arm for arm in experiment.arms if arm.name in asked)
