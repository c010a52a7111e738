"""Coloured shapes on noise, 16 × 16, and a recipe that trains on them in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from gradmix.data import ImageSet
from gradmix.training import Recipe, make_recipe

CLASSES = ("bar", "disc", "square")
SIDE = 16
FIELDS: dict[str, Any] = {
    "image_size": SIDE,
    "encoder": "resnet10_16",
    "feature_dim": 16,
    "layers": "conv4_2",
    "epochs": 2,
    "batch_size": 8,
    "warmup_steps": 2,
    "log_every": 2,
    "holdout": 0.0,
}
_PLAYERS = {"player_width": 4, "latent_channels": 4, "player_depth": 1, "made_images": 8}
# What makes the second networks of methods as small as the first.
SMALL: dict[str, dict[str, Any]] = {
    "attentive-cutmix": {
        "attention_init": "random",
        "attention_encoder": "resnet8_16",
        "attention_size": 64,
    },
    "arpl-cs": {"gan_width": 32, "noise_dim": 8},
    "c2ae": {"decoder_width": 32},
    "osrci": {**_PLAYERS, "counterfactual_steps": 2},
    "g-openmax": _PLAYERS,
    "g-openmax-gan": {"gan_width": 16, "noise_dim": 4, "made_images": 8},
}


def shape_image(kind: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """One (16, 16, 3) image: the kind decides form and colour, chance the place and the noise."""
    y, x = np.mgrid[:SIDE, :SIDE]
    cy, cx = rng.integers(5, 11, 2)
    inside = {
        "bar": abs(y - cy) <= 1,
        "disc": (y - cy) ** 2 + (x - cx) ** 2 <= 16,
        "square": (abs(y - cy) <= 3) & (abs(x - cx) <= 3),
        "cross": (abs(y - cy) <= 1) | (abs(x - cx) <= 1),
    }[kind]
    colour = {"bar": (220, 40, 40), "disc": (40, 220, 40), "square": (40, 40, 220), "cross": (220, 220, 40)}
    image = rng.integers(60, 130, (SIDE, SIDE, 3))
    image[inside] = colour[kind]
    return image.astype(np.uint8)


def tiny_images(each: int = 12, classes: tuple[str, ...] = CLASSES, seed: int = 0) -> ImageSet:
    rng = np.random.default_rng(seed)
    pictures = np.stack([shape_image(kind, rng) for kind in classes for _ in range(each)])
    return ImageSet(
        torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous(),
        torch.arange(len(classes)).repeat_interleave(each),
        classes,
    )


def tiny_recipe(**fields: Any) -> Recipe:
    """A recipe for these images; methods other than gradmix look at no layers."""
    values = {"stem": "half", **FIELDS, **fields}
    if values.get("method", "gradmix") != "gradmix":
        del values["layers"]
    return make_recipe(values)


def recipe_of(fields: dict[str, Any]) -> Recipe:
    if fields.get("method") == "moco":
        return make_recipe({"stem": "half", **FIELDS, **fields})
    return tiny_recipe(**fields)


def make_photos(folder: Path) -> None:
    """``folder`` with eight images of each class in a folder of its own."""
    rng = np.random.default_rng(0)
    for kind in CLASSES:
        (folder / kind).mkdir(parents=True)
        for i in range(8):
            Image.fromarray(shape_image(kind, rng)).save(folder / kind / f"{i}.png")
