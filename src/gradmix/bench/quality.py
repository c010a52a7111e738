"""AUROC against minutes: the same encoder and the same minutes for every method.

Each contestant has a run folder, so that a bench that was stopped goes on where it was. How many steps each
gets is settled before the first one starts, from steps of all that take turns, and kept in ``steps.json``:
no contestant gains from a quick moment of the machine, and the learning rate ends within the minutes given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..data import ImageSet, OpenSetData
from ..detection import Outputs
from ..errors import UserError
from ..evaluation.metrics import auroc
from ..files import wait_for_lock, write_text
from ..recognition import build_recognizer, extract, save
from ..recognition.build import make_own_detector
from ..training import Recipe, RunFolder, Trained, make_recipe, replace_fields, train
from .rounds import take_turns
from .step import TrainingStep


@dataclass(frozen=True)
class Contestant:
    """What differs from the recipe; it is scored by its method's own detector."""

    name: str
    fields: Mapping[str, Any]


CONTESTANTS = {
    "ce": Contestant("ce + mls", {"method": "ce"}),
    "none": Contestant("supcon + simclr", {"method": "gradmix", "mixer": "none"}),
    "cutmix": Contestant("+ CutMix", {"method": "gradmix", "mixer": "cutmix"}),
    "gradmix": Contestant("+ GradMix", {"method": "gradmix", "mixer": "gradmix"}),
}


@dataclass(frozen=True)
class Point:
    """Where a contestant stood after so many minutes of training (evaluation not counted); shares of 1."""

    steps: int
    minutes: float
    auroc: float
    accuracy: float


@dataclass(frozen=True)
class Curve:
    """One contestant's points, in order."""

    contestant: str
    points: tuple[Point, ...]


def bench_quality(
    data: OpenSetData,
    recipe: Recipe,
    minutes: float,
    out: Path,
    points: int = 4,
    contestants: Sequence[Contestant] = tuple(CONTESTANTS.values()),
    keep_models: bool = False,
) -> list[Curve]:
    """Train every contestant for ``minutes`` in ``out``; skips what is done, goes on with what is not.

    ``keep_models`` leaves each contestant's model in its folder, for ``gradmix evaluate`` and the rest.
    """
    steps = settle_steps(data, recipe, minutes, out, points, contestants)
    return [
        _train_and_measure(
            data, contestant, recipe, minutes, out, points, steps[contestant.name], keep_models
        )
        for contestant in contestants
    ]


def make_contestant_recipe(recipe: Recipe, contestant: Contestant) -> Recipe:
    """Return the recipe with the contestant's fields; other fields are kept where its method has them."""
    return make_recipe(replace_fields(recipe.flat(), contestant.fields))


def settle_steps(
    data: OpenSetData,
    recipe: Recipe,
    minutes: float,
    out: Path,
    points: int,
    contestants: Sequence[Contestant],
) -> dict[str, int]:
    """Return how many steps of each fit into the minutes, as settled by the first call for this folder."""
    file = out / "steps.json"
    steps = _read_steps(file)
    missing = [contestant for contestant in contestants if contestant.name not in steps]
    if missing:
        seconds = measure_step_seconds(
            {contestant.name: make_contestant_recipe(recipe, contestant) for contestant in missing}, data
        )
        measured = {name: max(points, round(60 * minutes / each)) for name, each in seconds.items()}
        out.mkdir(parents=True, exist_ok=True)
        lock = out / ".steps.json.lock"
        with wait_for_lock(lock, f"waiting for the process that writes {file}"):
            steps = measured | _read_steps(file)  # what another call has settled meanwhile stays
            write_text(file, json.dumps(steps, indent=2) + "\n")
            with suppress(OSError):  # some systems keep open files
                lock.unlink()
    return steps


def _read_steps(file: Path) -> dict[str, int]:
    steps: dict[str, int] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return steps


def _train_and_measure(
    data: OpenSetData,
    contestant: Contestant,
    recipe: Recipe,
    minutes: float,
    out: Path,
    points: int,
    steps: int,
    keep_model: bool,
) -> Curve:
    folder = out / contestant.name.replace(" ", "").replace("+", "-").replace("/", "-").strip("-")
    result, curve_file = folder / "curve.json", folder / "points.jsonl"
    all_images = {"holdout": 0.0, "limit_per_class": None}
    all_minutes = {"max_steps": steps, "epochs": 10**6}
    own = make_recipe(
        make_contestant_recipe(recipe, contestant).flat() | all_images | all_minutes | {"device": "cpu"}
    )
    asked = {"arm": contestant.name, "split_hash": data.split.hash, "minutes_asked": minutes}
    run = RunFolder(folder)
    if run.recipe_file.exists():
        _refuse_others(run, own, asked)
        if result.exists():
            return _read_curve(contestant, result)
    found: dict[int, Point] = {}

    def watch(so_far: Trained, total: int) -> None:
        due = {round(total * i / points) for i in range(1, points + 1)}
        if so_far.steps in due and so_far.steps not in found:
            found[so_far.steps] = evaluate_point(so_far, data, own)
            text = "".join(json.dumps(asdict(found[step])) + "\n" for step in sorted(found))
            write_text(curve_file, text)

    with run.exclusive():
        if run.recipe_file.exists():
            _refuse_others(run, own, asked)  # looked at again: it may have come there only now
        else:
            facts = {"command": "gradmix bench quality", **asked, "seed": own.training.seed}
            run.start(own, facts)
        found = {point.steps: point for point in _read_points(curve_file)}
        trained = train(data.train, own, run, watch=watch)
        if keep_model:
            save(build_recognizer(trained, data.train, None, own), run.model_file)
            # Only now: with an account of its data `gradmix train --resume` would go on, without points.
            content = data.train.content_hash()
            request = {"split": asdict(data.split), "skip_bad": False, "content_hash": content}
            run.add_facts(steps=trained.steps, minutes=round(trained.minutes, 2), data=request)
        write_text(result, json.dumps([asdict(found[step]) for step in sorted(found)], indent=2) + "\n")
    return _read_curve(contestant, result)


def _refuse_others(run: RunFolder, recipe: Recipe, asked: Mapping[str, Any]) -> None:
    """Refuse a run that was asked for something else."""
    if run.recipe() != recipe or not asked.items() <= run.facts().items():
        raise UserError(f"{run.path} was made with other data, minutes or settings; choose another --out")


def measure_step_seconds(
    recipes: Mapping[str, Recipe], data: OpenSetData, rounds: int = 12
) -> dict[str, float]:
    """Return the mean time of a training step per recipe, over the sizes that its views take."""
    shares: dict[tuple[str, int], float] = {}
    turns: dict[str, TrainingStep] = {}
    for name, recipe in recipes.items():
        batch = data.train.select(range(min(recipe.training.batch_size, len(data.train))))
        for size, share in recipe.views.sizes().items():
            shares[name, size] = share
            turns[f"{name}, {size} px"] = TrainingStep(recipe, batch, size)
    timings = take_turns(turns, next(iter(turns)), rounds)
    found = dict.fromkeys(recipes, 0.0)
    for (name, _), share, timing in zip(shares, shares.values(), timings, strict=True):
        found[name] += share * timing.ratio * timings[0].seconds
    return found


def evaluate_point(so_far: Trained, data: OpenSetData, recipe: Recipe) -> Point:
    """Return AUROC and closed-set accuracy of the network so far."""

    def outputs(images: ImageSet, what: str) -> Outputs:
        return extract(so_far.network, so_far.normalizer, images, what=what)

    detector = make_own_detector(recipe)
    detector.fit(outputs(data.train, "features of the training images"), len(data.train.class_names))
    known = detector.score(outputs(data.test_known, "features of the known test images"))
    unknown = detector.score(outputs(data.test_unknown, "features of the unknown test images"))
    accuracy = float((known.label == data.test_known.labels).double().mean())
    return Point(so_far.steps, round(so_far.minutes, 3), auroc(known.score, unknown.score), accuracy)


def _read_points(file: Path) -> list[Point]:
    if not file.exists():
        return []
    return [Point(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def _read_curve(contestant: Contestant, file: Path) -> Curve:
    return Curve(contestant.name, tuple(Point(**row) for row in json.loads(file.read_text(encoding="utf-8"))))
