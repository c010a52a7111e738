"""Run an experiment: trial by trial, each training once, never again what is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...data import ImageSet
from ...errors import UserError
from ...files import try_lock, write_text
from ...recognition import Recognizer, build_recognizer
from ...training.run_folder import versions
from ..images import GeneratedImages, Images, StoredImages, TrialData, take_per_class
from ..measures import MEASURES, MeasureInput
from .deviations import limit_corrupted
from .estimate import format_duration
from .plan import ImagesKey, Plan, Trial
from .recipes import NOT_OF_RESULTS
from .results import Curve, ExperimentResult, TrialFiles, TrialResult, collect
from .survey import Survey, survey
from .trainings import Store, replace_detection, select_trained_images

Say = Callable[[str], None]
_SECONDS_BETWEEN_CHECKS = 1.0  # at the trials that other processes are doing


@dataclass(frozen=True)
class Runner:
    """``root`` holds the trainings, which experiments share, and a folder for each experiment and preset.

    ``overrides``: recipe fields that were changed for all arms, noted with every trial.
    ``jobs``: how many processes share the work, for estimates.
    ``again``: ``look`` counts what is done as still to do, as it will be after ``forget``.
    """

    plan: Plan
    root: Path
    data_root: Path | str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    say: Say = lambda line: None
    jobs: int = 1
    again: bool = False

    @property
    def folder(self) -> Path:
        return self.root / self.plan.folder

    @property
    def files(self) -> TrialFiles:
        return TrialFiles(self.folder)

    @property
    def images(self) -> Images:
        family = self.plan.family
        return GeneratedImages(family) if self.plan.preset.generated else StoredImages(self.data_root, family)

    @property
    def store(self) -> Store:
        if self.plan.max_steps:  # nothing to show on the way, and no need to index every image
            return Store(self.root, index_per_class=self.plan.test_per_class)
        return Store(self.root, self.plan.preset.snapshots)

    def list_todo(self) -> list[Trial]:
        """Return the trials without a result; raise if a stored result is of other settings."""
        done = self.files.read()
        self._refuse_to_mix(done)
        for trial in self.plan.trials:
            found = done.get(trial.name)
            if found is not None and found.key != trial.key:
                raise UserError(
                    f"{self.folder} holds '{trial.name}' of another setting; use another --out, or --force "
                    "to do it again"
                )
        return [trial for trial in self.plan.trials if trial.name not in done]

    def _refuse_to_mix(self, done: Mapping[str, TrialResult]) -> None:
        """Raise if stored trials that share the table have other settings."""
        asked = {trial.name for trial in self.plan.trials}
        code = {arm.name: arm.code for arm in self.plan.arms}
        for found in done.values():
            if found.name in asked:
                continue
            if _drop_irrelevant_fields(found.overrides) != _drop_irrelevant_fields(self.overrides):
                raise UserError(
                    f"{self.folder} holds '{found.name}' with other recipe fields ({dict(found.overrides)}); "
                    "use another --out"
                )
            if found.code != code.get(found.arm, found.code):
                raise UserError(
                    f"{self.folder} holds '{found.name}' of another version of your file {found.arm}; use "
                    "another --out, or --force with that trial too"
                )

    def forget(self, skip_missing: bool = False) -> None:
        """Remove the results of this plan and their trainings; raise before that if data is missing."""
        found = replace(self, again=True).look(skip_missing, timed=False)
        with ExitStack() as locks:
            for key in found.plan.trainings():
                if not locks.enter_context(try_lock(self.store.lock(key))):
                    raise UserError(
                        f"another process is at work on {self.store.folder(key).path}; let it end, or stop "
                        "it, before --force"
                    )
            for trial in found.plan.trials:
                self.files.remove(trial.name)
                self.store.forget(trial.training)

    def take_over(self, root: Path) -> int:
        """Copy the trials of this plan that ``root``, the root of another run, has and this one has not.

        Return how many. A trial is taken only under its key: same recipe, seed, images and test.
        """
        other = TrialFiles(root / self.plan.folder)
        if not other.folder.is_dir():
            raise UserError(f"no results of {self.plan.folder} in {root}: there is no folder {other.folder}")
        missing = [trial for trial in self.plan.trials if not self.files.has(trial.name)]
        return sum(self.files.take_over(trial.name, trial.key, other) for trial in missing)

    def look(self, skip_missing: bool = False, timed: bool = True) -> Survey:
        """Return what is to be done, with an estimate of the time (None where timing is not worth it)."""
        if not self.again:
            return survey(self.plan, self.list_todo(), self.images, self.store.is_done, skip_missing, timed)
        self._refuse_to_mix(self.files.read())
        return survey(self.plan, self.plan.trials, self.images, lambda key: False, skip_missing, timed)

    def run(self, skip_missing: bool = False, timed: bool = True) -> ExperimentResult:
        """Run the trials not done yet, wait for those of other processes, and write result.json."""
        found = self.look(skip_missing, timed)
        self.say(describe(found, self.jobs))
        self.work(found)
        return self.collect_so_far(found.plan)

    def work(self, found: Survey, wait: bool = True) -> None:
        """Run trials as long as there are any to take; ``wait``: until those of other processes end too."""
        images, store, left = self.images, self.store, dict(found.seconds or {})
        all_of_them = len(self._list_left(found.plan))
        trial_data: tuple[ImagesKey, TrialData] | None = None
        for trial in self._take_trials(found.plan, wait):
            if trial_data is None or trial_data[0] != trial.images_key:  # arms of a trial share their images
                views = trial.recipe.views
                read = images.load_trial_data(trial.data, trial.number, views.image_size, views.channels)
                trial_data = (trial.images_key, read)
            started = time.monotonic()
            result = self._run_trial(trial, trial_data[1], images, store)
            took = format_duration(time.monotonic() - started)
            to_do = self._list_left(found.plan)
            seconds = sum(left.get(key, 0.0) for key in {trial.training for trial in to_do})
            rest = f"; about {format_duration(seconds / self.jobs)} of training left" if seconds else ""
            number = f"[{all_of_them - len(to_do)}/{all_of_them}] " if wait else ""
            self.say(f"{number}{self._describe_result(trial, result)} ({took}{rest})")

    def _list_left(self, plan: Plan) -> list[Trial]:
        return [trial for trial in self.list_todo() if trial in plan.trials]

    def _take_trials(self, plan: Plan, wait: bool) -> Iterator[Trial]:
        """Yield the trials to do, each with its training locked until the next is asked for."""
        while to_do := self._list_left(plan):
            took_none = True
            for trial in to_do:
                with try_lock(self.store.lock(trial.training)) as ours:
                    if ours and not self.files.has(trial.name):
                        took_none = False
                        yield trial
            if took_none and not wait:
                return
            if took_none:
                time.sleep(_SECONDS_BETWEEN_CHECKS)

    def collect_so_far(self, plan: Plan | None = None) -> ExperimentResult:
        """Return what is done by now and write it to result.json; ``plan``: the part of it that has data."""
        result = collect(plan or self.plan, self.folder, self.command)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "result.json", json.dumps(result.to_json(), indent=1) + "\n")
        return result

    def _run_trial(self, trial: Trial, trial_data: TrialData, images: Images, store: Store) -> TrialResult:
        trained = store.obtain(trial.training, trial.recipe, trial_data.train)
        recognizer = replace_detection(trained, trial.recipe)
        seen = select_trained_images(trial_data.train, trial.recipe)
        inputs = self._make_measure_input(trial, recognizer, trial_data, images, seen)
        measured = MEASURES[self.plan.experiment.measure].at_end(inputs)
        facts = store.folder(trial.training).facts()
        result = TrialResult(
            bench=trial.bench.name,
            arm=trial.arm.name,
            arm_label=trial.arm.label,
            trial=trial.number,
            key=trial.key,
            training=trial.training,
            seed=trial.recipe.training.seed,
            split_hash=trial.split_hash,
            metrics=dict(measured.metrics),
            series=dict(measured.series),
            curve=self._measure_snapshots(trial, recognizer, inputs, store),
            steps=facts["steps"],
            minutes=facts["minutes"],
            core_minutes=facts.get("core_minutes", 0.0),
            images=facts["images"],
            recipe=trial.recipe.flat(),
            overrides=dict(self.overrides),
            versions=versions(),
            notes=measured.notes,
            code=trial.arm.code,
        )
        self.files.write(result, measured.pictures)
        return result

    def _make_measure_input(
        self, trial: Trial, recognizer: Recognizer, trial_data: TrialData, images: Images, train: ImageSet
    ) -> MeasureInput:
        preset, most = self.plan.preset, self.plan.test_per_class
        tested = trial_data.limit_tests(most)
        return MeasureInput(
            recognizer,
            trial.recipe,
            take_per_class(train, most) if self.plan.max_steps else train,
            tested.test,
            tested.unknown,
            tested.unknown_names,
            images,
            trial.data,
            trial.number,
            self.plan.experiment.out,
            most,
            limit_corrupted(preset, most),
            preset.probe,
        )

    def _measure_snapshots(
        self, trial: Trial, recognizer: Recognizer, inputs: MeasureInput, store: Store
    ) -> Curve:
        """Return the measure's main number at every snapshot, on few images."""
        few = self.plan.preset.curve_per_class
        unknown = inputs.unknown
        inputs = replace(
            inputs,
            test=take_per_class(inputs.test, few),
            unknown=None if unknown is None else take_per_class(unknown, few),
        )
        steps, values = [], []
        for step, then in store.load_snapshots(trial.training, recognizer):
            model = build_recognizer(then, inputs.train, None, trial.recipe)
            value = MEASURES[self.plan.experiment.measure].at_snapshots(replace(inputs, recognizer=model))
            steps.append(float(step))
            values.append(value)
        return steps, values

    def _describe_result(self, trial: Trial, result: TrialResult) -> str:
        column = self.plan.experiment.columns[0]
        value = result.metrics.get(column.metric)
        scale = 100 if column.percent else 1
        shown = "" if value is None else f": {column.label} {scale * value:.2f}"
        return f"{trial.bench.label}, {trial.arm.label}, trial {trial.number}{shown}"


def describe(found: Survey, jobs: int = 1) -> str:
    """Return one line that says what will be done."""
    if not found.todo:
        return f"{found.plan.experiment.name} ({found.plan.preset.name}): all done before; nothing to train"
    seconds = sum(found.seconds.values()) / jobs if found.seconds else 0
    hours = f", about {format_duration(seconds)} of training here" if seconds else ""
    at_once = f", {jobs} at a time" if jobs > 1 else ""
    trials = _format_count(len(found.todo), "trial")
    return (
        f"{found.plan.experiment.name} ({found.plan.preset.name}): {trials} to do, "
        f"{_format_count(len(found.work), 'training')}, {found.steps:,} steps in all{hours}{at_once}"
    )


def _drop_irrelevant_fields(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in overrides.items() if name not in NOT_OF_RESULTS}


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
