"""The recipe of one arm on one bench in one preset, and the key of its training."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from ...errors import UserError, choose
from ...methods import METHODS
from ...models import ENCODERS
from ...recipe import Recipe, field_names, load_recipe, make_recipe, read_recipe_values, recipe_names
from ...views import ViewSettings
from ..declaration import Arm, Bench, Experiment
from .presets import Preset

# What changes nothing about the trained weights: a training is shared by arms that differ only in these.
NOT_OF_TRAINING = (
    "detector",
    "k",
    "score_normalize",
    "score_temperature",
    *("openmax_tail", "openmax_alpha", "openmax_distance", "openmax_variant"),
    "false_reject",
    *("error_threshold", "unknown_chance"),
    "device",
    "log_every",
    "checkpoint_minutes",
)
# The fields that recipes had when trainings were first recorded. These trainings must keep their keys, so a
# field that came later is in the key only where it differs from its default (which must not change either).
_FIRST_FIELDS = {
    *("method", "mixer", "mix_weight", "gamma_min", "gamma_max", "gamma_per", "alpha", "locate", "patch"),
    *("attribution", "layers", "map_normalize", "theta", "lam", "supcon_temperature", "simclr_temperature"),
    *("mixed_temperature", "supcon_denominator", "pairing", "target", "label_smoothing", "moco_temperature"),
    *("queue_size", "key_momentum", "attention_init", "attention_encoder", "attention_size"),
    *("attention_grid", "attention_cells"),
    *("image_size", "start_size", "grow_after", "grow_until", "channels", "normalize", "crop_scale"),
    *("crop_ratio", "flip", "rotate", "brightness", "contrast", "saturation", "hue", "jitter_chance"),
    *("grey_chance", "encoder", "stem", "feature_dim", "projection", "init"),
    *("epochs", "max_steps", "batch_size", "optimizer", "lr", "lr_min", "warmup_steps", "weight_decay"),
    *("clip_norm", "seed", "precision", "compile", "limit_per_class", "batch_norm", "knn_index", "holdout"),
}
# What changes no number at all: with another device or another pace of logging it is the same setting.
NOT_OF_RESULTS = ("device", "log_every", "checkpoint_minutes")
UNLIMITED_EPOCHS = 10**6  # of a recipe that leaves the number of steps to a budget of arithmetic
_OF_THE_IMAGES = ("image_size", "channels", "flip")
_STAGES_OF_THE_PAPER = 4  # of ResNet18, by whose names layers are called


def build_recipe(
    experiment: Experiment,
    bench: Bench,
    arm: Arm,
    preset: Preset,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
) -> Recipe:
    """Preset's recipe ← bench ← experiment ← arm's recipe ← preset ← arm ← overrides, the later the stronger.

    Fields that the arm's method does not have are left out: cross-entropy has no layers.
    """
    base = f"{preset.recipes}/{bench.recipe.removeprefix('paper/')}"
    values = _get_explicit_fields(load_recipe(base)) | dict(bench.fields) | dict(experiment.fields)
    values |= read_published_fields(arm, bench, preset.recipes)
    values |= preset.fields
    if preset.operations:
        values |= {"max_steps": None, "epochs": UNLIMITED_EPOCHS}
    if preset.largest_image:
        values["image_size"] = min(int(values["image_size"]), preset.largest_image)
    for name in ("epochs", "max_steps"):
        if values.get(name) is not None and arm.length != 1 and not preset.operations:
            values[name] = round(arm.length * int(values[name]))
    values |= dict(arm.fields) | {"seed": seed}
    # What is smaller in a preset stays so, whatever a declared arm says for the paper's size.
    if "queue_size" in preset.fields and not arm.is_own:
        values["queue_size"] = preset.fields["queue_size"]
    values |= dict(overrides or {})
    method = choose("method", str(values.get("method", "gradmix")), METHODS)
    allowed = set(field_names(method))
    return _replace_missing_layers(make_recipe({n: value for n, value in values.items() if n in allowed}))


def read_published_fields(arm: Arm, bench: Bench, folder: str = "paper") -> dict[str, Any]:
    """Return the fields of the recipe that the arm's method was published with.

    That for CIFAR10 stands in where a data set has none of its own, except for what it says of the images.
    Of a folder other than ``paper``, only what the method's recipe changes of the folder's own, and the views
    that the publication has for this data set.
    """
    if not arm.recipe:
        return {}
    if folder != "paper":
        usual = read_recipe_values(f"{folder}/cifar10")
        fields = {
            n: v for n, v in read_recipe_values(f"{folder}/{arm.recipe}-cifar10").items() if v != usual.get(n)
        }
        fields |= _read_published_views(arm, bench)
    elif (name := f"paper/{arm.recipe}-{bench.name}") in recipe_names():
        return read_recipe_values(name)
    else:
        fields = read_recipe_values(f"paper/{arm.recipe}-cifar10")
    return {name: value for name, value in fields.items() if name not in _OF_THE_IMAGES}


def _read_published_views(arm: Arm, bench: Bench) -> dict[str, Any]:
    """Return how the publication's views of this data set differ from those of CIFAR10: of digits, say."""
    name = f"paper/{arm.recipe}-{bench.name}"
    if name not in recipe_names():
        return {}
    usual = read_recipe_values(f"paper/{arm.recipe}-cifar10")
    views = {field.name for field in dataclasses.fields(ViewSettings)}
    return {n: v for n, v in read_recipe_values(name).items() if n in views and v != usual.get(n)}


def _replace_missing_layers(recipe: Recipe) -> Recipe:
    """Replace layers, named as in ResNet18, by those one stage earlier if the encoder has a stage less."""
    layers = getattr(recipe.objective, "layers", ())
    if not layers or count_stages(recipe.model.encoder) == _STAGES_OF_THE_PAPER:
        return recipe
    earlier = tuple(shift_one_stage_earlier(name) for name in layers)
    if any(name.startswith("conv1_") for name in earlier):
        raise UserError(
            f"layers: nothing takes the place of conv2 in {recipe.model.encoder}, which has a stage less "
            "than ResNet18; name some of conv3_2, conv4_2, conv5_2"
        )
    return dataclasses.replace(recipe, objective=dataclasses.replace(recipe.objective, layers=earlier))


@functools.cache
def count_stages(encoder: str) -> int:
    """Return how many stages the encoder of that name has.

    >>> count_stages("resnet18"), count_stages("resnet8_16")
    (4, 3)
    """
    with torch.device("meta"):  # only its shape is asked for
        return len(ENCODERS[encoder](3, "small").layer_names)


def shift_one_stage_earlier(layer: str) -> str:
    """Return the layer that replaces ``layer`` in an encoder with one stage less.

    >>> shift_one_stage_earlier("conv5_2")
    'conv4_2'
    """
    if layer.startswith("conv") and layer[4:5].isdigit():
        return f"conv{int(layer[4]) - 1}{layer[5:]}"
    return layer


def check_overrides(overrides: Mapping[str, Any], arms: tuple[Arm, ...]) -> None:
    """Raise for a field that no arm's method has, and for a seed, which trials set."""
    if "seed" in overrides:
        raise UserError("seed: every trial has its own, its number; choose trials with --trials 0,3,4")
    methods = {str(arm.fields.get("method", "gradmix")) for arm in arms}
    allowed = {name for method in methods for name in field_names(method)} - {"method", "seed"}
    for name in overrides:
        choose("option or recipe field", name, allowed)


def make_training_key(recipe: Recipe, data: Mapping[str, Any]) -> str:
    """Return 16 hex digits of what decides the trained weights: recipe, seed, images, the method's code."""
    usual = make_recipe({"method": recipe.method}).flat()
    fields = {
        name: value
        for name, value in recipe.flat().items()
        if name not in NOT_OF_TRAINING and (name in _FIRST_FIELDS or value != usual[name])
    }
    code = getattr(METHODS[recipe.method], "code_hash", "")  # of methods from the user's own file
    return digest({"recipe": fields, "data": dict(data), "code": code})


def digest(content: Any) -> str:
    """Return 16 hex digits of SHA-256 over JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _get_explicit_fields(recipe: Recipe) -> dict[str, Any]:
    """Return all fields but the objective's defaults: another method has defaults of its own.

    The layers are always included.
    """
    defaults = {f.name: f.default for f in dataclasses.fields(recipe.objective) if f.name != "layers"}
    return {
        name: value
        for name, value in recipe.flat().items()
        if name not in defaults or getattr(recipe.objective, name) != defaults[name]
    }
