"""AUROC against minutes: the same encoder and the same minutes for every method.

Each arm is a run folder, so that a bench that was stopped goes on where it was. How many steps each arm gets
is settled before the first one starts, from steps of all arms that take turns, and kept in ``steps.json``:
no arm gains from a quick moment of the machine, and the learning rate ends within the minutes given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..atomic import write_text
from ..data import ImageSet, OpenSetData
from ..detection import Outputs, make_detector
from ..errors import UserError
from ..evaluation.metrics import auroc
from ..recognition import build_recognizer, extract, save
from ..training import Recipe, RunFolder, Trained, make_recipe, replaced, train
from .rounds import take_turns
from .step import TrainingStep


@dataclass(frozen=True)
class Arm:
    """What differs from the recipe, and the detector that goes with it."""

    name: str
    fields: Mapping[str, Any]
    detector: str


ARMS = {
    "ce": Arm("ce + mls", {"method": "ce"}, "mls"),
    "none": Arm("supcon + simclr", {"method": "gradmix", "mixer": "none"}, "knn"),
    "cutmix": Arm("+ CutMix", {"method": "gradmix", "mixer": "cutmix"}, "knn"),
    "gradmix": Arm("+ GradMix", {"method": "gradmix", "mixer": "gradmix"}, "knn"),
}


@dataclass(frozen=True)
class Point:
    """Where an arm stood after so many minutes of training (evaluation not counted); shares of 1."""

    steps: int
    minutes: float
    auroc: float
    accuracy: float


@dataclass(frozen=True)
class Curve:
    """One arm's points, in order."""

    arm: str
    points: tuple[Point, ...]


def bench_quality(
    data: OpenSetData,
    recipe: Recipe,
    minutes: float,
    out: Path,
    points: int = 4,
    arms: Sequence[Arm] = tuple(ARMS.values()),
    keep_models: bool = False,
) -> list[Curve]:
    """Train every arm for ``minutes`` in ``out``; skips what is done, goes on with what is not.

    ``keep_models`` leaves each arm's model in its folder, for ``gradmix evaluate`` and the rest.
    """
    steps = settled_steps(data, recipe, minutes, out, points, arms)
    return [_curve(data, arm, recipe, minutes, out, points, steps[arm.name], keep_models) for arm in arms]


def arm_recipe(recipe: Recipe, arm: Arm) -> Recipe:
    """The recipe with the arm's fields; the objective's other fields are kept where the method has them."""
    return make_recipe(replaced(recipe.flat(), arm.fields))


def settled_steps(
    data: OpenSetData, recipe: Recipe, minutes: float, out: Path, points: int, arms: Sequence[Arm]
) -> dict[str, int]:
    """How many steps of each arm fit into the minutes, as settled by the first call for this folder."""
    file = out / "steps.json"
    steps: dict[str, int] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    missing = [arm for arm in arms if arm.name not in steps]
    if missing:
        seconds = step_seconds({arm.name: arm_recipe(recipe, arm) for arm in missing}, data)
        steps |= {name: max(points, round(60 * minutes / each)) for name, each in seconds.items()}
        out.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(steps, indent=2) + "\n")
    return steps


def _curve(
    data: OpenSetData,
    arm: Arm,
    recipe: Recipe,
    minutes: float,
    out: Path,
    points: int,
    steps: int,
    keep_model: bool,
) -> Curve:
    folder = out / arm.name.replace(" ", "").replace("+", "-").replace("/", "-").strip("-")
    result, curve_file = folder / "curve.json", folder / "points.jsonl"
    all_images = {"holdout": 0.0, "limit_per_class": None}
    all_minutes = {"max_steps": steps, "epochs": 10**6}
    own = make_recipe(arm_recipe(recipe, arm).flat() | all_images | all_minutes | {"device": "cpu"})
    asked = {"arm": arm.name, "split_hash": data.split.hash, "minutes_asked": minutes}
    if (folder / "recipe.yaml").exists():
        run = RunFolder.open(folder)
        if run.recipe() != own or not asked.items() <= run.facts().items():
            raise UserError(f"{folder} was made with other data, minutes or settings; choose another --out")
        if result.exists():
            return _read(arm, result)
    else:
        facts = {"command": "gradmix bench quality", **asked, "seed": own.training.seed}
        run = RunFolder.create(folder, own, facts)
    found = {point.steps: point for point in _points(curve_file)}

    def watch(so_far: Trained, total: int) -> None:
        due = {round(total * i / points) for i in range(1, points + 1)}
        if so_far.steps in due and so_far.steps not in found:
            found[so_far.steps] = evaluated(so_far, data, arm.detector, run.recipe())
            text = "".join(json.dumps(asdict(found[step])) + "\n" for step in sorted(found))
            write_text(curve_file, text)

    trained = train(data.train, run.recipe(), run, watch=watch)
    if keep_model:
        save(build_recognizer(trained, data.train, None, run.recipe()), run.model_file)
        # Only now: with an account of its data `gradmix train --resume` would go on, and leave points out.
        request = {"split": asdict(data.split), "skip_bad": False, "content_hash": data.train.content_hash()}
        run.add_facts(steps=trained.steps, minutes=round(trained.minutes, 2), data=request)
    write_text(result, json.dumps([asdict(found[step]) for step in sorted(found)], indent=2) + "\n")
    return _read(arm, result)


def step_seconds(recipes: Mapping[str, Recipe], data: OpenSetData, rounds: int = 12) -> dict[str, float]:
    """Mean time of a training step of each recipe here, over the sizes that its views take."""
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


def evaluated(so_far: Trained, data: OpenSetData, detector_name: str, recipe: Recipe) -> Point:
    """AUROC and closed-set accuracy of what there is so far."""

    def outputs(images: ImageSet, what: str) -> Outputs:
        return extract(so_far.network, so_far.normalizer, images, what=what)

    d = recipe.detection
    settings = {"k": d.k, "normalize": d.score_normalize} if detector_name == "knn" else {}
    detector = make_detector(detector_name, **settings)
    detector.fit(outputs(data.train, "features of the training images"), len(data.train.class_names))
    known = detector.score(outputs(data.test_known, "features of the known test images"))
    unknown = detector.score(outputs(data.test_unknown, "features of the unknown test images"))
    accuracy = float((known.label == data.test_known.labels).double().mean())
    return Point(so_far.steps, round(so_far.minutes, 3), auroc(known.score, unknown.score), accuracy)


def _points(file: Path) -> list[Point]:
    if not file.exists():
        return []
    return [Point(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def _read(arm: Arm, file: Path) -> Curve:
    return Curve(arm.name, tuple(Point(**row) for row in json.loads(file.read_text(encoding="utf-8"))))
