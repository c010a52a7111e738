"""The recipe of one arm on one bench in one preset, and the key of its training."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import UserError, choose
from ..methods import METHODS
from ..models import ENCODERS
from ..training import Recipe, field_names, load_recipe, make_recipe
from .declaration import Arm, Bench, Experiment
from .presets import Preset

# What changes nothing about the trained weights: a training is shared by arms that differ only in these.
NOT_OF_TRAINING = (
    "k",
    "score_normalize",
    "false_reject",
    "device",
    "log_every",
    "checkpoint_minutes",
)
# What changes no number at all: with another device or another pace of logging it is the same setting.
NOT_OF_RESULTS = ("device", "log_every", "checkpoint_minutes")
_STAGES_OF_THE_PAPER = 4  # of ResNet18, by whose names layers are called


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
    # What is smaller in a preset stays so, whatever a declared arm says for the paper's size.
    if "queue_size" in preset.fields and not arm.is_own:
        values["queue_size"] = preset.fields["queue_size"]
    values |= dict(overrides or {})
    method = choose("method", str(values.get("method", "gradmix")), METHODS)
    allowed = set(field_names(method))
    return _with_layers_that_exist(make_recipe({n: value for n, value in values.items() if n in allowed}))


def _with_layers_that_exist(recipe: Recipe) -> Recipe:
    """Layers are named as in ResNet18; in an encoder with a stage less, the stage before stands for each."""
    layers = getattr(recipe.objective, "layers", ())
    if not layers or stages_of(recipe.model.encoder) == _STAGES_OF_THE_PAPER:
        return recipe
    earlier = tuple(one_stage_earlier(name) for name in layers)
    if any(name.startswith("conv1_") for name in earlier):
        raise UserError(
            f"layers: nothing takes the place of conv2 in {recipe.model.encoder}, which has a stage less "
            "than ResNet18; name some of conv3_2, conv4_2, conv5_2"
        )
    return dataclasses.replace(recipe, objective=dataclasses.replace(recipe.objective, layers=earlier))


@functools.cache
def stages_of(encoder: str) -> int:
    """How many stages the encoder of that name has.

    >>> stages_of("resnet18"), stages_of("resnet8_16")
    (4, 3)
    """
    with torch.device("meta"):  # only its shape is asked for
        return len(ENCODERS[encoder](3, "small").layer_names)


def one_stage_earlier(layer: str) -> str:
    """The layer that takes a layer's place in an encoder with one stage less.

    >>> one_stage_earlier("conv5_2")
    'conv4_2'
    """
    if layer.startswith("conv") and layer[4:5].isdigit():
        return f"conv{int(layer[4]) - 1}{layer[5:]}"
    return layer


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
