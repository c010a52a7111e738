"""The recipe of one arm on one bench in one preset, and how it departs from the paper's."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ..errors import UserError, choose
from ..methods import METHODS
from ..training import Recipe, field_names, load_recipe, make_recipe
from .declaration import Arm, Bench, Experiment
from .presets import PAPER, Preset

# What changes nothing about the trained weights: a training is shared by arms that differ only in these.
NOT_OF_TRAINING = (
    "k",
    "score_normalize",
    "false_reject",
    "device",
    "log_every",
    "checkpoint_minutes",
)
_NOT_A_DEPARTURE = ("seed", "device", "log_every", "checkpoint_minutes")


def recipe_for(
    experiment: Experiment,
    bench: Bench,
    arm: Arm,
    preset: Preset,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
) -> Recipe:
    """Paper's recipe ← bench ← experiment ← preset ← arm ← overrides, the later the stronger.

    Fields that the arm's method does not have are left out: cross-entropy has no layers.
    """
    values = _explicit(load_recipe(bench.recipe)) | dict(bench.fields) | dict(experiment.fields)
    values |= preset.fields
    if preset.largest_image:
        values["image_size"] = min(int(values["image_size"]), preset.largest_image)
    values |= dict(arm.fields) | {"seed": seed}
    # What is smaller in a preset stays so, whatever an arm says for the paper's size.
    values |= {name: preset.fields[name] for name in ("queue_size",) if name in preset.fields}
    if preset.fewer_stages:
        values["layers"] = [one_stage_earlier(name) for name in values["layers"]]
    values |= dict(overrides or {})
    method = choose("method", str(values.get("method", "gradmix")), METHODS)
    allowed = set(field_names(method))
    return make_recipe({name: value for name, value in values.items() if name in allowed})


def one_stage_earlier(layer: str) -> str:
    """The layer that takes a layer's place in an encoder with one stage less.

    >>> one_stage_earlier("conv5_2")
    'conv4_2'
    """
    if layer.startswith("conv") and layer[4:5].isdigit():
        return f"conv{int(layer[4]) - 1}{layer[5:]}"
    return layer


def departures(
    experiment: Experiment, benches: tuple[Bench, ...], preset: Preset, overrides: Mapping[str, Any]
) -> list[str]:
    """How the last row's recipe (the method in question) differs from the paper's: "epochs: 600 → 5"."""
    arm = [arm for arm in experiment.arms if arm.implemented][-1]
    found: dict[str, list[str]] = {}
    for bench in benches:
        paper = recipe_for(experiment, bench, arm, PAPER).flat()
        here = recipe_for(experiment, bench, arm, preset, overrides=overrides).flat()
        for name, value in here.items():
            if name not in _NOT_A_DEPARTURE and value != paper.get(name):
                found.setdefault(f"{name}: {_said(paper.get(name))} → {_said(value)}", []).append(bench.label)
    return [
        change if len(where) == len(benches) else f"{change} ({', '.join(where)})"
        for change, where in found.items()
    ]


def check_overrides(overrides: Mapping[str, Any], arms: tuple[Arm, ...]) -> None:
    """A field that no arm's method has is a mistake; so is a seed, which trials set."""
    if "seed" in overrides:
        raise UserError("seed: every trial has its own, its number; choose trials with --trials 0,3,4")
    methods = {str(arm.fields.get("method", "gradmix")) for arm in arms if arm.implemented}
    allowed = {name for method in methods for name in field_names(method)} - {"method", "seed"}
    for name in overrides:
        choose("option or recipe field", name, allowed)


def training_key(recipe: Recipe, data: Mapping[str, Any]) -> str:
    """16 hex digits of all that decides the trained weights: recipe, seed, images, the method's own code."""
    fields = {name: value for name, value in recipe.flat().items() if name not in NOT_OF_TRAINING}
    code = getattr(METHODS[recipe.method], "code_hash", "")  # of methods from the user's own file
    return digest({"recipe": fields, "data": dict(data), "code": code})


def digest(content: Any) -> str:
    """16 hex digits of SHA-256 over JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _explicit(recipe: Recipe) -> dict[str, Any]:
    """All fields but those of the objective that are its defaults: another method has defaults of its own.

    The layers are always meant, also where they are the default.
    """
    defaults = {f.name: f.default for f in dataclasses.fields(recipe.objective) if f.name != "layers"}
    return {
        name: value
        for name, value in recipe.flat().items()
        if name not in defaults or getattr(recipe.objective, name) != defaults[name]
    }


def _said(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else "all" if value is None else str(value)
