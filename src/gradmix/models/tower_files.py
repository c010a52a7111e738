"""The files of an image tower, on the Hub or in a folder: sizes, preparation of the images, weights.

``hf:OWNER/NAME[@REVISION]`` is on the Hub, ``hf:./FOLDER`` a folder with the same files. Three files are
read, two of JSON and one of tensors. Nothing in them is executed, and of the JSON only the fields
listed here count.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import UserError
from ..files import read_tensors
from ..hub_file import MODEL_FILE, HubAddress, check_repo, fetch, fetch_if_there

NEEDS = (
    "image towers of the Hub need the extra 'transformers': pip install -c constraints.txt '.[transformers]'"
)
PREFIX = "hf:"
CONFIG_FILE, PREPARATION_FILE = "config.json", "preprocessor_config.json"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LONGEST_JSON = 2**20  # bytes
_LARGEST = {"num_hidden_layers": 256, "image_size": 4096}  # of a field; else _LARGEST_NUMBER
_LARGEST_NUMBER = 2**17
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_COMMON = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "hidden_act", "layer_norm_eps"),
    *("image_size", "patch_size", "num_channels"),
)
_DINO2 = (
    *("mlp_ratio", "qkv_bias", "layerscale_value", "use_swiglu_ffn", "drop_path_rate"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob"),
)
_DINO3 = (
    *("intermediate_size", "num_register_tokens", "attention_dropout", "rope_theta", "layerscale_value"),
    *("query_bias", "key_bias", "value_bias", "proj_bias", "mlp_bias", "use_gated_mlp", "drop_path_rate"),
    *("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"),
)


@dataclass(frozen=True)
class TowerType:
    """A kind of model that is taken: the fields of its configuration, and how it wants images."""

    fields: tuple[str, ...]
    statistics: tuple[tuple[float, ...], tuple[float, ...]]  # mean and deviation, if no file says so


# By the name that config.json gives as model_type.
TOWER_TYPES = {
    "dinov2": TowerType((*_COMMON, *_DINO2, "use_mask_token"), _IMAGENET),
    "dinov2_with_registers": TowerType((*_COMMON, *_DINO2, "num_register_tokens"), _IMAGENET),
    "dinov3_vit": TowerType((*_COMMON, *_DINO3), _IMAGENET),
    "clip_vision_model": TowerType((*_COMMON, "intermediate_size", "attention_dropout"), _CLIP),
    "siglip_vision_model": TowerType(
        (*_COMMON, "intermediate_size", "attention_dropout", "vision_use_head"), _HALF
    ),
}
_TOWER_OF = {"clip": "clip_vision_model", "siglip": "siglip_vision_model"}  # models of images and texts
_WITHIN = "vision_config"


@dataclass(frozen=True)
class Preparation:
    """Side of the images that the model is used with, and mean and deviation of the channels in [0, 1]."""

    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class TowerFiles:
    """What the files say, but the weights, which are read when they are wanted.

    ``config`` holds only fields that the type lists. ``revision``: the commit, of a model on the Hub.
    """

    name: str  # OWNER/NAME, or ./FOLDER
    revision: str
    model_type: str
    config: dict[str, Any]
    preparation: Preparation
    weights: Path


def is_tower(encoder: str) -> bool:
    """Return whether a recipe's encoder is an image tower on the Hub, or in a folder.

    >>> is_tower("hf:facebook/dinov2-small"), is_tower("resnet18")
    (True, False)
    """
    return encoder.startswith(PREFIX)


def parse_tower(encoder: str) -> HubAddress | Path:
    """Return where the files are; raise UserError if that cannot be told.

    >>> parse_tower("hf:facebook/dinov2-small@v1"), parse_tower("hf:./dinov2").name
    (HubAddress(repo='facebook/dinov2-small', revision='v1'), 'dinov2')
    """
    rest = encoder.removeprefix(PREFIX)
    if rest.startswith("//"):  # hf://owner/name, as everywhere else
        rest = rest.lstrip("/")
    elif rest.startswith((".", "/", "~")):
        return Path(rest).expanduser()
    repo, _, revision = rest.partition("@")
    return HubAddress(check_repo(repo), revision or None)


def read_tower(encoder: str) -> TowerFiles:
    """Fetch and read what describes a tower: sizes and preparation. Its weights are fetched too, not read."""
    place = parse_tower(encoder)
    if importlib.util.find_spec("transformers") is None:  # before anything is fetched
        raise UserError(NEEDS)
    if isinstance(place, Path):
        if not (place / CONFIG_FILE).is_file():
            raise UserError(
                f"{encoder}: no {CONFIG_FILE} in {place}, which must have the files of a model of the Hub"
            )
        config = _read_json(place / CONFIG_FILE, encoder)
        model_type, values = choose_fields(config, encoder)
        preparation = place / PREPARATION_FILE
        weights = place / MODEL_FILE
        if not weights.is_file():
            raise UserError(f"{encoder}: no {MODEL_FILE} in the folder {place}")
        found = preparation if preparation.is_file() else None
        name, revision = f"./{place.resolve().name}", ""
    else:
        first = fetch(place, CONFIG_FILE)
        # The other files from the same commit, whatever is uploaded meanwhile.
        commit = first.parent.name if _COMMIT.fullmatch(first.parent.name) else ""
        pinned = HubAddress(place.repo, commit or place.revision)
        model_type, values = choose_fields(_read_json(first, encoder), encoder)
        found, weights = fetch_if_there(pinned, PREPARATION_FILE), fetch(pinned)
        name, revision = place.repo, commit
    said = {} if found is None else _read_json(found, encoder)
    return TowerFiles(name, revision, model_type, values, read_preparation(said, model_type, values), weights)


def choose_fields(config: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """Return the type of a tower, and of its configuration what that type lists."""
    said = str(config.get("model_type", ""))
    model_type = _TOWER_OF.get(said, said)
    if model_type not in TOWER_TYPES:
        raise UserError(
            f"{where} is a model of type '{said}'; those that can be used are "
            f"{', '.join((*TOWER_TYPES, *_TOWER_OF))}"
        )
    inner = config.get(_WITHIN, {}) if said in _TOWER_OF else config
    if not isinstance(inner, Mapping):
        raise UserError(f"{where}: '{_WITHIN}' in {CONFIG_FILE} holds no fields")
    return model_type, {name: inner[name] for name in TOWER_TYPES[model_type].fields if name in inner}


def check_fields(model_type: str, config: Mapping[str, Any]) -> None:
    """Raise UserError for a configuration with other fields than the type lists, or with absurd numbers."""
    if model_type not in TOWER_TYPES:
        raise UserError(f"an image tower of type '{model_type}' is not one of {', '.join(TOWER_TYPES)}")
    for name, value in config.items():
        if name not in TOWER_TYPES[model_type].fields:
            raise UserError(f"an image tower of type {model_type} has no field '{name}'")
        if value is not None and not isinstance(value, bool | int | float | str):
            raise UserError(f"field '{name}' of the image tower is {value!r}, not a plain value")
        if isinstance(value, int | float) and not 0 <= value <= _LARGEST.get(name, _LARGEST_NUMBER):
            raise UserError(f"field '{name}' of the image tower cannot be {value}")


def read_preparation(
    said: Mapping[str, Any], model_type: str, config: Mapping[str, Any] | None = None
) -> Preparation:
    """Return how images are prepared, from preprocessor_config.json; what it does not say, as usual.

    >>> read_preparation({"size": {"shortest_edge": 256}, "crop_size": 224}, "siglip_vision_model")
    Preparation(image_size=224, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    """
    usual_mean, usual_std = TOWER_TYPES[model_type].statistics
    mean, std = _read_channels(said.get("image_mean")), _read_channels(said.get("image_std"))
    if said.get("do_normalize") is False:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if std is not None and min(std) <= 0:
        raise UserError(f"{PREPARATION_FILE}: image_std must be positive, not {std}")
    cropped = said.get("crop_size") if said.get("do_center_crop", True) else None
    side = _read_side(cropped) or _read_side(said.get("size")) or _read_side((config or {}).get("image_size"))
    return Preparation(side or 224, mean or usual_mean, std or usual_std)


def read_tower_weights(file: Path) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a tower as float32, and the SHA-256 of their file."""
    try:
        with open(file, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        tensors = read_tensors(file)[1]
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{file} is truncated or not a file of weights ({error})") from error
    return {n: value.float() if value.is_floating_point() else value for n, value in tensors.items()}, digest


def _read_channels(found: Any) -> tuple[float, ...] | None:
    """Return three numbers, or None."""
    if not isinstance(found, list) or len(found) != 3 or not all(isinstance(v, int | float) for v in found):
        return None
    return tuple(float(value) for value in found)


def _read_side(size: Any) -> int:
    """Return the side of square images: a number, or what a mapping calls height or shortest edge; else 0."""
    if isinstance(size, Mapping):
        size = size.get("height", size.get("shortest_edge"))
    plain = isinstance(size, int) and not isinstance(size, bool)
    return size if plain and 0 < size <= _LARGEST["image_size"] else 0


def _read_json(file: Path, where: str) -> dict[str, Any]:
    try:
        if file.stat().st_size > _LONGEST_JSON:
            raise ValueError("it is too long")
        values = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("it holds no fields")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: {file.name} cannot be read: {error}") from error
    return values
