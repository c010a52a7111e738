"""From a declaration to the list of trials: which trainings there will be, under which keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...data import FAMILIES
from ...detection.approximate import import_faiss
from ...errors import UserError, choose
from ...recognition.build import make_own_detector
from ...training import Recipe
from ..declaration import Arm, Bench, Data, Experiment
from ..images import describe_training_images, get_trial_split
from ..measures import MEASURES
from .arithmetic import limit_by_arithmetic
from .deviations import Coverage, choose_data, deviations_from_paper
from .presets import Preset
from .recipes import build_recipe, check_overrides, digest, make_training_key

_TEST_WHEN_CUT_SHORT = 8  # images per class: after --max-steps there is nothing to measure exactly
# What methods make between their stages takes hours at full size, however few the steps.
_WHEN_CUT_SHORT = {"made_images": 16, "counterfactual_steps": 2}
_USUAL_FAMILY = "arpl_2020"
_FIRST_SOFTMAX = ["msp", {"temperature": 1.0}]  # as neighbours, not named in the keys of the first trials
ImagesKey = tuple[str, int, int, int]


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
    def images_key(self) -> ImagesKey:
        """Return what decides the images: bench, split, size and channels. Trials of one key share them."""
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
    def deviations(self) -> tuple[str, ...]:
        """Say in words how what is planned differs from the paper's."""
        planned = {trial.arm.name for trial in self.trials}
        arms = tuple(arm for arm in self.arms if arm.name in planned)
        counts = Counter((trial.bench.name, trial.arm.name) for trial in self.trials)
        return self.deviations_of(Coverage(self.benches, arms, counts.values()))

    def deviations_of(self, coverage: Coverage) -> tuple[str, ...]:
        """Say the same of ``coverage``, which may be less or more than is planned now."""
        return tuple(
            deviations_from_paper(self.declared, coverage, self.preset, self.fields, self.test_per_class)
        )

    @property
    def test_per_class(self) -> int | None:
        return _TEST_WHEN_CUT_SHORT if self.max_steps else self.preset.test_per_class

    @property
    def folder(self) -> str:
        """Return the folder of the results under the root: short runs and other splits have their own."""
        family = "" if self.family == _USUAL_FAMILY else f"-{self.family}"
        steps = f"-{self.max_steps}-steps" if self.max_steps else ""
        return f"{self.experiment.name}-{self.preset.name}{family}{steps}"

    def trainings(self) -> dict[str, Trial]:
        """Return each distinct training, by key, with the first trial that needs it."""
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
    """List the trials of an experiment in a preset.

    ``protocols`` and ``methods`` choose benches and arms by name (none given: all that the preset has);
    ``own`` adds arms; ``trials`` are trial numbers; ``overrides`` are recipe fields for all arms.
    """
    choose("family of splits", family, FAMILIES)
    limits = experiment.limits(preset.name)
    declared = experiment
    if preset.name != "paper":
        small = [replace(bench, label=bench.small_label or bench.label) for bench in declared.benches]
        experiment = replace(experiment, benches=tuple(small))
    benches = _choose_benches("protocol", experiment.benches, protocols, limits.benches if limits else None)
    keep = limits.arms if limits else None
    _check_names(experiment, own)
    arms = (*_choose_arms(experiment, methods, keep), *own)
    numbers = _choose_trials(experiment, preset) if trials is None else tuple(trials)
    fields = dict(overrides or {})
    check_overrides(fields, arms)
    if max_steps is not None:
        fields = _WHEN_CUT_SHORT | fields | {"max_steps": max_steps}
    made = tuple(
        _make_trial(experiment, bench, arm, number, preset, family, fields, max_steps)
        for number in numbers  # first: a table of one trial is whole before the next begins
        for bench in benches
        for arm in arms
        if _has_needed_field(arm, preset, fields, asked=arm.name in methods)
    )
    return Plan(declared, experiment, preset, family, benches, arms, made, max_steps, fields)


def count_steps(recipe: Recipe, images: int) -> int:
    """Return how many steps a training on so many images takes."""
    s = recipe.training
    per_epoch = images // min(s.batch_size, images)
    return min(s.epochs * per_epoch, s.max_steps or s.epochs * per_epoch)


def _make_trial(
    experiment: Experiment,
    bench: Bench,
    arm: Arm,
    number: int,
    preset: Preset,
    family: str,
    fields: Mapping[str, Any],
    max_steps: int | None,
) -> Trial:
    data = choose_data(bench, preset)
    recipe = build_recipe(experiment, bench, arm, preset, number, fields)
    if preset.operations is not None:
        recipe = limit_by_arithmetic(recipe, preset.operations)
    MEASURES[experiment.measure].check(recipe)  # now, not after hours of training
    if recipe.detection.knn_index != "exact":
        import_faiss()  # likewise
    split = get_trial_split(data, number, family)
    images = describe_training_images(data, number, family) | {"generated": preset.generated}
    if max_steps is not None:
        # Kept without snapshots and with a small index: not to be found by whoever trains as long by recipe.
        images["cut_short"] = True
    training = make_training_key(recipe, images)
    tested = {
        "training": training,
        "k": recipe.detection.k,
        "score_normalize": recipe.detection.score_normalize,
        "measure": experiment.measure,
        "split": split.hash if split else None,
        "tests": [preset.test_per_class, preset.corrupted_per_class, preset.probe, max_steps],
        "out": list(experiment.out),
    }
    detector = make_own_detector(recipe)
    told = [detector.name, detector.settings()]
    if detector.name != "knn" and told != _FIRST_SOFTMAX:
        tested["detector"] = told
    return Trial(bench, arm, number, data, recipe, training, digest(tested), split.hash if split else None)


def _has_needed_field(arm: Arm, preset: Preset, fields: Mapping[str, Any], asked: bool) -> bool:
    given = not arm.needs or arm.needs in fields or arm.needs in preset.fields
    if asked and not given:
        raise UserError(f"{arm.label} needs --{arm.needs.replace('_', '-')}; give it, or leave the row out")
    return given


def _check_names(experiment: Experiment, own: Sequence[Arm]) -> None:
    """Raise if two rows share a name, by which trials are stored, or a label, by which they are drawn."""
    names, labels = ({getattr(arm, of) for arm in experiment.arms} for of in ("name", "label"))
    for i, arm in enumerate(own):
        if arm.name in names:
            raise UserError(f"{experiment.name} has a row '{arm.name}' already; give your file another name")
        if any(arm.name == other.name for other in own[:i]):
            raise UserError(f"two rows of your own are called '{arm.name}'; give one of them another name")
        if arm.label in labels | {other.label for other in own[:i]}:
            raise UserError(f"there is a row labelled '{arm.label}' already; give {arm.name} another label")


def _choose_trials(experiment: Experiment, preset: Preset) -> tuple[int, ...]:
    limits = experiment.limits(preset.name)
    chosen = experiment.trials if limits is None else limits.trials
    numbers = tuple(range(chosen)) if isinstance(chosen, int) else chosen
    return numbers[: preset.most_trials]


def _choose_benches(
    kind: str, benches: tuple[Bench, ...], asked: Sequence[str], default: tuple[str, ...] | None
) -> tuple[Bench, ...]:
    names = [bench.name for bench in benches]
    wanted = [choose(kind, name, names) for name in asked] or default or names
    return tuple(bench for bench in benches if bench.name in wanted)


def _choose_arms(
    experiment: Experiment, asked: Sequence[str], default: tuple[str, ...] | None
) -> tuple[Arm, ...]:
    if not asked:
        wanted: Sequence[str] = default or [arm.name for arm in experiment.arms if not arm.beyond_paper]
        return tuple(arm for arm in experiment.arms if arm.name in wanted)
    names = [arm.name for arm in experiment.arms]
    for name in asked:
        choose("method", name, names)
    return tuple(arm for arm in experiment.arms if arm.name in asked)
