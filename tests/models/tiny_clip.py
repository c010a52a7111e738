"""A random CLIP of two layers with the names and the vocabulary of the published ones, in a file."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.training.tiny import SIDE

WIDTH, LAYERS, PATCH, DIM, WORDS, CONTEXT = 64, 2, 4, 32, 49408, 77
RECIPE: dict[str, Any] = {"image_size": SIDE, "channels": 3, "normalize": "clip"}
_folder = tempfile.TemporaryDirectory(prefix="tiny-clip-")  # as long as the process


def tiny_clip(side: int = SIDE, width: int = WIDTH, denies: bool = False, seed: int = 0) -> dict[str, Tensor]:
    """OpenAI's names and shapes for images of ``side`` pixels; ``denies``: CLIPN's second text tower too."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, std: float = 0.0) -> Tensor:
        return (std or shape[-1] ** -0.5) * torch.randn(*shape, generator=generator)

    def block(path: str) -> dict[str, Tensor]:
        found = {
            f"{path}attn.in_proj_weight": draw(3 * width, width),
            f"{path}attn.in_proj_bias": draw(3 * width, std=0.1),
            f"{path}attn.out_proj.weight": draw(width, width),
            f"{path}attn.out_proj.bias": draw(width, std=0.1),
            f"{path}mlp.c_fc.weight": draw(4 * width, width),
            f"{path}mlp.c_fc.bias": draw(4 * width, std=0.1),
            f"{path}mlp.c_proj.weight": draw(width, 4 * width),
            f"{path}mlp.c_proj.bias": draw(width, std=0.1),
        }
        return found | norm(f"{path}ln_1") | norm(f"{path}ln_2")

    def norm(path: str) -> dict[str, Tensor]:
        return {f"{path}.weight": 1 + draw(width, std=0.1), f"{path}.bias": draw(width, std=0.1)}

    def text(suffix: str = "") -> dict[str, Tensor]:
        found = {
            f"token_embedding{suffix}.weight": draw(WORDS, width, std=0.3),
            f"positional_embedding{suffix}": draw(CONTEXT, width, std=0.1),
            f"text_projection{suffix}": draw(width, DIM),
        }
        for i in range(LAYERS):
            found |= block(f"transformer{suffix}.resblocks.{i}.")
        return found | norm(f"ln_final{suffix}")

    weights = {
        "visual.conv1.weight": draw(width, 3, PATCH, PATCH, std=0.2),
        "visual.class_embedding": draw(width),
        "visual.positional_embedding": draw((side // PATCH) ** 2 + 1, width, std=0.3),
        "visual.proj": draw(width, DIM),
        "logit_scale": torch.tensor(100.0).log(),
        **norm("visual.ln_pre"),
        **norm("visual.ln_post"),
    }
    for i in range(LAYERS):
        weights |= block(f"visual.transformer.resblocks.{i}.")
    weights |= text()
    if denies:
        weights |= text("_no") | {"prompt_no": draw(16, CONTEXT, width, std=0.1)}
    return weights


@functools.cache
def tiny_clip_file(denies: bool = False) -> str:
    """The path of such a file; the same weights in every process."""
    path = Path(_folder.name) / f"clip-{denies}.safetensors"
    save_file(tiny_clip(denies=denies), path)
    return str(path)


def clip_fields(method: str, **fields: Any) -> dict[str, Any]:
    """The fields of a recipe of a CLIP method, for the images of tests/training/tiny.py."""
    init = tiny_clip_file(denies=method == "clipn")
    return {"method": method, "init": init, **RECIPE, **fields}
