"""From a declaration to the list of trials: which trainings there will be, under which keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..data import FAMILIES
from ..detection.approximate import import_faiss
from ..errors import UserError, choose
from ..training import Recipe
from .cuts import Extent, cuts, data_of
from .declaration import Arm, Bench, Data, Experiment
from .images import identity, split_of
from .measures import MEASURES
from .presets import Preset
from .recipes import check_overrides, digest, recipe_for, training_key

_TEST_WHEN_CUT_SHORT = 8  # images a class: after --max-steps there is nothing to measure exactly
_USUAL_FAMILY = "arpl_2020"
Place = tuple[str, int, int, int]


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

    @property
    def place(self) -> Place:
        """Trials of one place read the same images: of a bench and split, in one size and colour."""
        views = self.recipe.views
        return self.bench.name, self.number, views.image_size, views.channels


@dataclass(frozen=True)
class Plan:
    """Everything that is to be done.

    ``declared`` is the experiment as in the paper, ``experiment`` the same under the names of the preset.
    ``fields`` are recipe fields changed for all rows; ``left_out``: why benches without data are left out.
    """

    declared: Experiment
    experiment: Experiment
    preset: Preset
    family: str
    benches: tuple[Bench, ...]
    arms: tuple[Arm, ...]
    trials: tuple[Trial, ...]
    max_steps: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def cuts(self) -> tuple[str, ...]:
        """In words, how what is planned is less than the paper's."""
        planned = {trial.arm.name for trial in self.trials}
        arms = tuple(arm for arm in self.arms if arm.name in planned)
        counts = Counter((trial.bench.name, trial.arm.name) for trial in self.trials)
        return self.cuts_of(Extent(self.benches, arms, counts.values()))

    def cuts_of(self, extent: Extent) -> tuple[str, ...]:
        """The same of what there is, which may be less or more than is planned now."""
        return tuple(cuts(self.declared, extent, self.preset, self.fields, self.test_per_class))

    @property
    def test_per_class(self) -> int | None:
        return _TEST_WHEN_CUT_SHORT if self.max_steps else self.preset.test_per_class

    @property
    def folder(self) -> str:
        """Where results go, under the root: those of two steps, or of other splits, stay apart."""
        family = "" if self.family == _USUAL_FAMILY else f"-{self.family}"
        steps = f"-{self.max_steps}-steps" if self.max_steps else ""
        return f"{self.experiment.name}-{self.preset.name}{family}{steps}"

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
    family: str = _USUAL_FAMILY,
    max_steps: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Plan:
    """``protocols`` and ``methods`` choose benches and arms by name (none given: all that the preset has);
    ``own`` adds arms; ``trials`` are trial numbers; ``overrides`` are recipe fields for all arms."""
    choose("family of splits", family, FAMILIES)
    cut = experiment.cpu if preset.name == "cpu" else None
    declared = experiment
    if preset.name != "paper":
        small = [replace(bench, label=bench.small_label or bench.label) for bench in declared.benches]
        experiment = replace(experiment, benches=tuple(small))
    benches = _chosen("protocol", experiment.benches, protocols, cut.benches if cut else None)
    keep = cut.arms if cut else None
    _check_names(experiment, own)
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
    return Plan(declared, experiment, preset, family, benches, arms, made, max_steps, fields)


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
    data = data_of(bench, preset)
    recipe = recipe_for(experiment, bench, arm, preset, number, fields)
    MEASURES[experiment.measure].check(recipe)  # now, not after hours of training
    if recipe.detection.knn_index != "exact":
        import_faiss()  # likewise
    split = split_of(data, number, family)
    told = identity(data, number, family) | {"generated": preset.generated}
    if max_steps is not None:
        # Kept without snapshots and with a small index: not to be found by whoever trains as long by recipe.
        told["cut_short"] = True
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


def _check_names(experiment: Experiment, own: Sequence[Arm]) -> None:
    """Trials are kept by the names of rows and drawn by their labels: no two may share either."""
    names, labels = ({getattr(arm, of) for arm in experiment.arms} for of in ("name", "label"))
    for i, arm in enumerate(own):
        if arm.name in names:
            raise UserError(f"{experiment.name} has a row '{arm.name}' already; give your file another name")
        if any(arm.name == other.name for other in own[:i]):
            raise UserError(f"two rows of your own are called '{arm.name}'; give one of them another name")
        if arm.label in labels | {other.label for other in own[:i]}:
            raise UserError(f"there is a row labelled '{arm.label}' already; give {arm.name} another label")


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
