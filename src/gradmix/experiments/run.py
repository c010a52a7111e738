"""Run an experiment: trial by trial, each training once, never again what is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..atomic import write_text
from ..data import ImageSet
from ..errors import UserError
from ..locks import claimed
from ..recognition import Recognizer, build_recognizer
from ..training.run_folder import versions
from .cuts import corrupted_per_class
from .estimate import in_words
from .images import GeneratedImages, Images, Material, StoredImages, per_class
from .measures import MEASURES, Subject
from .plan import Place, Plan, Trial
from .recipes import NOT_OF_RESULTS
from .results import Curve, ExperimentResult, TrialFiles, TrialResult, collect
from .survey import Survey, survey
from .trainings import Store, trained_on, with_detection

Say = Callable[[str], None]
_SECONDS_BETWEEN_LOOKS = 1.0  # at the trials that other processes are doing


@dataclass(frozen=True)
class Runner:
    """``root`` holds the trainings, which experiments share, and a folder for each experiment and preset.

    ``overrides``: recipe fields that were changed for all arms, noted with every trial.
    ``jobs``: how many processes share the work, for estimates.
    ``again``: a look counts what is done as still to be done, as it will be after ``forget``.
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

    def todo(self) -> list[Trial]:
        """The trials without a result; results of anything else than what is asked for are refused."""
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
        """Trials that are not asked for now stand in the same table: they must be of the same settings."""
        asked = {trial.name for trial in self.plan.trials}
        code = {arm.name: arm.code for arm in self.plan.arms}
        for found in done.values():
            if found.name in asked:
                continue
            if _that_count(found.overrides) != _that_count(self.overrides):
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
        """Remove the results of this plan and the trainings behind them, unless they cannot be made again."""
        found = replace(self, again=True).look(skip_missing, timed=False)
        with ExitStack() as locks:
            for key in found.plan.trainings():
                if not locks.enter_context(claimed(self.store.lock(key))):
                    raise UserError(
                        f"another process is at work on {self.store.folder(key).path}; let it end, or stop "
                        "it, before --force"
                    )
            for trial in found.plan.trials:
                self.files.remove(trial.name)
                self.store.forget(trial.training)

    def look(self, skip_missing: bool = False, timed: bool = True) -> Survey:
        """What is to be done, with an estimate of the time (None where timing is not worth it)."""
        if not self.again:
            return survey(self.plan, self.todo(), self.images, self.store.is_done, skip_missing, timed)
        self._refuse_to_mix(self.files.read())
        return survey(self.plan, self.plan.trials, self.images, lambda key: False, skip_missing, timed)

    def run(self, skip_missing: bool = False, timed: bool = True) -> ExperimentResult:
        """Do what is not done yet, wait for what other processes are doing, and write result.json."""
        found = self.look(skip_missing, timed)
        self.say(describe(found, self.jobs))
        self.work(found)
        return self.so_far(found.plan)

    def work(self, found: Survey, wait: bool = True) -> None:
        """Do trials as long as there are any to take; ``wait``: until those that others do are done too."""
        images, store, left = self.images, self.store, dict(found.seconds or {})
        all_of_them = len(self._left(found.plan))
        material: tuple[Place, Material] | None = None
        for trial in self._taken(found.plan, wait):
            if material is None or material[0] != trial.place:  # arms of a trial share their images
                views = trial.recipe.views
                read = images.material(trial.data, trial.number, views.image_size, views.channels)
                material = (trial.place, read)
            started = time.monotonic()
            result = self._do(trial, material[1], images, store)
            took = in_words(time.monotonic() - started)
            to_do = self._left(found.plan)
            seconds = sum(left.get(key, 0.0) for key in {trial.training for trial in to_do})
            rest = f"; about {in_words(seconds / self.jobs)} of training left" if seconds else ""
            number = f"[{all_of_them - len(to_do)}/{all_of_them}] " if wait else ""
            self.say(f"{number}{self._told(trial, result)} ({took}{rest})")

    def _left(self, plan: Plan) -> list[Trial]:
        return [trial for trial in self.todo() if trial in plan.trials]

    def _taken(self, plan: Plan, wait: bool) -> Iterator[Trial]:
        """One trial after the other, each ours alone until the next is asked for."""
        while to_do := self._left(plan):
            nothing = True
            for trial in to_do:
                with claimed(self.store.lock(trial.training)) as ours:
                    if ours and not self.files.has(trial.name):
                        nothing = False
                        yield trial
            if nothing and not wait:
                return
            if nothing:
                time.sleep(_SECONDS_BETWEEN_LOOKS)

    def so_far(self, plan: Plan | None = None) -> ExperimentResult:
        """What is done by now, also written to result.json; ``plan``: what was left of it after a look."""
        result = collect(plan or self.plan, self.folder, self.command)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "result.json", json.dumps(result.to_json(), indent=1) + "\n")
        return result

    def _do(self, trial: Trial, material: Material, images: Images, store: Store) -> TrialResult:
        trained = store.obtain(trial.training, trial.recipe, material.train)
        recognizer = with_detection(trained, trial.recipe)
        seen = trained_on(material.train, trial.recipe)
        subject = self._subject(trial, recognizer, material, images, seen)
        measured = MEASURES[self.plan.experiment.measure].at_end(subject)
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
            curve=self._curve(trial, recognizer, subject, store),
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

    def _subject(
        self, trial: Trial, recognizer: Recognizer, material: Material, images: Images, train: ImageSet
    ) -> Subject:
        preset, most = self.plan.preset, self.plan.test_per_class
        tested = material.tested_on(most)
        return Subject(
            recognizer,
            per_class(train, most) if self.plan.max_steps else train,
            tested.test,
            tested.unknown,
            tested.unknown_names,
            images,
            trial.data,
            trial.number,
            self.plan.experiment.out,
            most,
            corrupted_per_class(preset, most),
            preset.probe,
        )

    def _curve(self, trial: Trial, recognizer: Recognizer, subject: Subject, store: Store) -> Curve:
        """The measure's headline at every snapshot, on few images."""
        few = self.plan.preset.curve_per_class
        unknown = subject.unknown
        subject = replace(
            subject,
            test=per_class(subject.test, few),
            unknown=None if unknown is None else per_class(unknown, few),
        )
        steps, values = [], []
        for step, then in store.snapshots_of(trial.training, recognizer):
            model = build_recognizer(then, subject.train, None, trial.recipe)
            value = MEASURES[self.plan.experiment.measure].at_snapshots(replace(subject, recognizer=model))
            steps.append(float(step))
            values.append(value)
        return steps, values

    def _told(self, trial: Trial, result: TrialResult) -> str:
        column = self.plan.experiment.columns[0]
        value = result.metrics.get(column.metric)
        scale = 100 if column.percent else 1
        told = "" if value is None else f": {column.label} {scale * value:.2f}"
        return f"{trial.bench.label}, {trial.arm.label}, trial {trial.number}{told}"


def describe(found: Survey, jobs: int = 1) -> str:
    """One line before it starts."""
    if not found.todo:
        return f"{found.plan.experiment.name} ({found.plan.preset.name}): all done before; nothing to train"
    seconds = sum(found.seconds.values()) / jobs if found.seconds else 0
    hours = f", about {in_words(seconds)} of training here" if seconds else ""
    at_once = f", {jobs} at a time" if jobs > 1 else ""
    trials = _counted(len(found.todo), "trial")
    return (
        f"{found.plan.experiment.name} ({found.plan.preset.name}): {trials} to do, "
        f"{_counted(len(found.work), 'training')}, {found.steps:,} steps in all{hours}{at_once}"
    )


def _that_count(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in overrides.items() if name not in NOT_OF_RESULTS}


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
