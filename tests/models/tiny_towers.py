"""Image towers of two blocks and 32 dimensions with random weights, written by transformers as on the Hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPVisionConfig,
    CLIPVisionModel,
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    DINOv3ViTConfig,
    DINOv3ViTModel,
    PreTrainedModel,
    SiglipConfig,
    SiglipModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)
from transformers.utils import logging

SIDE, PATCH = 28, 7  # of the images and of the patches that they are made for
SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"image_size": SIDE, "patch_size": PATCH}
WIDE = SIZES | {"intermediate_size": 48}
TEXTS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
PREPARATION = {
    "size": {"shortest_edge": 36},
    "crop_size": {"height": SIDE, "width": SIDE},
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.2, 0.3, 0.4],
}
MAKE: dict[str, Callable[[], PreTrainedModel]] = {
    "dinov2": lambda: Dinov2Model(Dinov2Config(**SIZES)),
    "dinov2-registers": lambda: Dinov2WithRegistersModel(
        Dinov2WithRegistersConfig(**SIZES, num_register_tokens=3)
    ),
    "dinov3": lambda: DINOv3ViTModel(DINOv3ViTConfig(**WIDE, num_register_tokens=4)),
    "clip": lambda: CLIPModel(CLIPConfig(text_config=TEXTS, vision_config=WIDE, projection_dim=24)),
    "clip-vision": lambda: CLIPVisionModel(CLIPVisionConfig(**WIDE)),
    "siglip": lambda: SiglipModel(
        SiglipConfig(text_config=TEXTS, vision_config=WIDE | {"vision_use_head": True})
    ),
    "siglip-vision": lambda: SiglipVisionModel(SiglipVisionConfig(**WIDE)),
}


def save_tower(kind: str, folder: Path, preparation: dict[str, Any] | None = PREPARATION) -> PreTrainedModel:
    """Write a tower's files into ``folder`` and return the model of transformers."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(len(kind))
        model = MAKE[kind]().eval()
        for value in model.parameters():  # else many are zero or one, and nothing depends on them
            value.data += 0.05 * torch.randn_like(value)
    model.save_pretrained(folder)
    if preparation is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(preparation))
    return model


@torch.no_grad()
def own_features(model: PreTrainedModel, x: Tensor) -> Tensor:
    """Return what the model of transformers itself gives for images, pooled by its own rule."""
    asks = x.shape[-1] != SIDE and type(model).__name__.startswith(("CLIP", "Siglip"))
    resized = {"interpolate_pos_encoding": True} if asks else {}
    if isinstance(model, CLIPModel | SiglipModel):
        found: Any = model.get_image_features(pixel_values=x, **resized)
        return found if isinstance(found, Tensor) else found.pooler_output
    return model(pixel_values=x, **resized).pooler_output
