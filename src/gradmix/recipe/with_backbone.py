"""The recipe of a training whose network the user gives: by name on the Hub, or from a file of code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import UserError
from ..models.backbone import BACKBONE, Backbone
from ..models.tower_files import PREFIX, is_tower, read_tower
from ..models.user_backbone import is_code, read_user_backbone

BACKBONE_RECIPE = "frozen"  # if none is named: nothing is trained but linear maps of the network's features


def backbone_fields(word: str, given: Mapping[str, Any], chosen_recipe: bool = False) -> dict[str, Any]:
    """Return the recipe's fields for ``--backbone word``, under those that the user has ``given``.

    A name of the Hub or a folder with its files, code (``mine.py:build``), or an encoder's name. Without a
    recipe that the user has chosen, images have the size that the network is used with.
    """
    if "encoder" in given:
        raise UserError("--encoder and --backbone both name the network: give one of them")
    fields: dict[str, Any] = {"encoder": BACKBONE, "stem": "auto"} if is_code(word) else {"encoder": word}
    if not is_code(word) and not is_tower(word) and Path(word).is_dir():
        fields["encoder"] = f"{PREFIX}{Path(word).absolute()}"
    if not chosen_recipe and is_tower(fields["encoder"]):
        fields["image_size"] = _usual_size(fields["encoder"])
    return fields | dict(given)


def make_backbone(given: nn.Module | str, layer: str, values: Mapping[str, Any]) -> Backbone | None:
    """Return a module, or what ``mine.py:build`` makes, as an encoder for such a recipe.

    None for any other text: that is a name for the recipe, see :func:`backbone_fields`.
    """
    channels, size = int(values["channels"]), int(values["image_size"])
    if isinstance(given, nn.Module):
        return Backbone(given, layer, channels, size)
    if not is_code(given):
        return None
    return read_user_backbone(given).build_encoder(layer, channels, size, int(values["seed"]))


def maps_of(backbone: Backbone, values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``layers`` for methods that have that field: the last layer that gives maps, unless given."""
    if "layers" not in values or "layers" in given or not backbone.layer_names:
        return {}
    return {"layers": [list(backbone.layer_names)[-1]]}


def _usual_size(encoder: str) -> int:
    """Return the size that the tower is used with, in whole patches."""
    files = read_tower(encoder)
    size, patch = files.preparation.image_size, files.config.get("patch_size")
    return size if not isinstance(patch, int) or not 0 < patch <= size else size // patch * patch
