"""Before anything is trained: is the data there, how many steps will it be, and how long will they take?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...data import KNOWN_SETS
from ...errors import UserError
from ...progress import progress
from ..images import Images, list_sources, spread_evenly
from .arithmetic import count_arithmetic
from .estimate import Duration, Workload, estimate_durations
from .plan import ImagesKey, Plan, Trial, count_steps
from .trainings import select_trained_images

_SAMPLE = 512  # images kept of each training to time steps on
_WORTH_TIMING = 200  # steps in all: below, timing takes longer than training


@dataclass(frozen=True)
class Survey:
    """The plan as far as there is data; what of it is to be done: trials, and trainings by key."""

    plan: Plan
    todo: tuple[Trial, ...]
    work: dict[str, Workload]
    durations: dict[str, Duration] | None

    @property
    def seconds(self) -> dict[str, float] | None:
        """Return the estimated seconds of each training, by key, if steps were timed."""
        return {key: one.seconds for key, one in self.durations.items()} if self.durations else None

    @property
    def steps(self) -> int:
        return sum(one.steps for one in self.work.values())


@dataclass(frozen=True)
class RowOfWork:
    """The trainings of one row on one set of data that take the same number of steps, and what one costs."""

    bench: str
    arm: str
    trials: tuple[int, ...]
    steps: int
    each: Duration | None
    operations: float | None  # counted only where a budget of them decides the steps


def summarize_work(found: Survey) -> list[RowOfWork]:
    """Return what is to be trained, in the order of the plan, one row for trials that differ in nothing."""
    first = found.plan.trainings()
    groups: dict[tuple[str, str, int], list[str]] = {}
    for key, one in found.work.items():
        groups.setdefault((first[key].bench.label, first[key].arm.label, one.steps), []).append(key)
    rows = []
    for (bench, arm, steps), keys in groups.items():
        each = found.durations[keys[0]] if found.durations else None
        counted = found.plan.preset.operations is not None
        flop = count_arithmetic(found.work[keys[0]].recipe).total(steps) if counted else None
        rows.append(RowOfWork(bench, arm, tuple(first[key].number for key in keys), steps, each, flop))
    return rows


def survey(
    plan: Plan,
    todo: Sequence[Trial],
    images: Images,
    is_done: Callable[[str], bool],
    skip_missing: bool,
    timed: bool,
) -> Survey:
    """Read all data that ``todo`` needs; missing data is an error, or with ``skip_missing`` left out.

    ``is_done`` says of a training, by its key, whether it is there already.
    """
    work: dict[str, Workload] = {}
    left_out: dict[str, str] = {}
    by_images: dict[ImagesKey, list[Trial]] = {}
    for trial in todo:
        by_images.setdefault(trial.images_key, []).append(trial)
    with progress("looking at the data", len(by_images)) as advance:
        for images_key, trials in by_images.items():
            bench = images_key[0]
            advance(note=trials[0].bench.label)
            if bench in left_out:
                continue
            try:
                work |= _look(plan, trials, images, is_done)
            except UserError as error:
                if not skip_missing:
                    raise UserError(_describe_missing(plan, trials[0], error)) from error
                left_out[bench] = str(error)
    kept = tuple(trial for trial in plan.trials if trial.bench.name not in left_out)
    if left_out and not kept:
        raise UserError(f"nothing is left of {plan.experiment.name}: {next(iter(left_out.values()))}")
    work = {key: one for key, one in work.items() if any(trial.training == key for trial in kept)}
    durations = None
    if timed and sum(one.steps for one in work.values()) >= _WORTH_TIMING:
        with progress("timing steps", len(work)) as advance:
            durations = estimate_durations(work, advance)
    there = tuple(trial for trial in todo if trial in kept)
    return Survey(replace(plan, trials=kept, left_out=left_out), there, work, durations)


def _look(
    plan: Plan, trials: Sequence[Trial], images: Images, is_done: Callable[[str], bool]
) -> dict[str, Workload]:
    """Read the images that ``trials`` share, and return the trainings still to do, by key."""
    found: dict[str, Workload] = {}
    views = trials[0].recipe.views
    trial_data = images.load_trial_data(trials[0].data, trials[0].number, views.image_size, views.channels)
    for source in plan.experiment.out:
        images.load_foreign(source, views.image_size, views.channels)
    for trial in trials:
        if is_done(trial.training):
            continue
        to_train = select_trained_images(trial_data.train, trial.recipe)
        sample = to_train.select(spread_evenly(len(to_train), _SAMPLE))
        found[trial.training] = Workload(trial.recipe, count_steps(trial.recipe, len(to_train)), sample)
    return found


def _describe_missing(plan: Plan, trial: Trial, error: UserError) -> str:
    needed = [*list_sources(trial.data, trial.number, plan.family), *plan.experiment.out]
    repos = [KNOWN_SETS[name].hub_repo for name in needed if name in KNOWN_SETS]
    get = "".join(f"; {repo} on the Hugging Face Hub has it" for repo in dict.fromkeys(repos) if repo)
    others = [bench.name for bench in plan.benches if bench.name != trial.bench.name]
    way = f"; run the rest with --protocol {','.join(others)} or --skip-missing" if others else ""
    return (
        f"{plan.experiment.name} needs data for {trial.bench.label}, trial {trial.number}: {error}{get}{way}"
    )
