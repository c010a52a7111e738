"""Published weights of CLIP, by whichever names, as those of OpenAI: ``visual.conv1.weight``, …

``transformers`` names the same tensors differently, holds query, key and value apart, and the two
projections the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ...errors import UserError

Weights = dict[str, Tensor]
_TRANSFORMERS = "vision_model.embeddings.class_embedding"
_RESNET = "visual.attnpool.positional_embedding"
_FIRST = "visual.conv1.weight"
# Facts about the model beside its weights.
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask")
_RENAMED = {
    r"vision_model\.embeddings\.class_embedding": "visual.class_embedding",
    r"vision_model\.embeddings\.patch_embedding\.": "visual.conv1.",
    r"vision_model\.embeddings\.position_embedding\.weight": "visual.positional_embedding",
    r"vision_model\.pre_layrnorm\.": "visual.ln_pre.",
    r"vision_model\.post_layernorm\.": "visual.ln_post.",
    r"vision_model\.encoder\.layers\.": "visual.transformer.resblocks.",
    r"visual_projection\.weight": "visual.proj",
    r"text_model\.embeddings\.token_embedding\.": "token_embedding.",
    r"text_model\.embeddings\.position_embedding\.weight": "positional_embedding",
    r"text_model\.final_layer_norm\.": "ln_final.",
    r"text_model\.encoder\.layers\.": "transformer.resblocks.",
    r"text_projection\.weight": "text_projection",
}
_RENAMED_IN_BLOCK = {
    ".self_attn.": ".attn.",
    ".layer_norm1.": ".ln_1.",
    ".layer_norm2.": ".ln_2.",
    ".mlp.fc1.": ".mlp.c_fc.",
    ".mlp.fc2.": ".mlp.c_proj.",
}
_QUERY = re.compile(r"(.*\.attn\.)q_proj\.(weight|bias)")


def use_openai_names(weights: Mapping[str, Tensor]) -> Weights:
    """Return the weights by OpenAI's names in float32; raise UserError for those of another network."""
    kept = {
        name: value.float()
        for name, value in weights.items()
        if name not in _NOT_WEIGHTS and not name.endswith(".position_ids")
    }
    if _TRANSFORMERS in kept:
        kept = _from_transformers(kept)
    if _RESNET in kept:
        raise UserError("init: this is a CLIP with a ResNet; take one with a vision transformer (ViT)")
    if _FIRST not in kept:
        raise UserError(f"init: these are no weights of CLIP: they lack '{_FIRST}'")
    return kept


def _from_transformers(weights: Weights) -> Weights:
    renamed = {_rename(name): value for name, value in weights.items()}
    for name in ("visual.proj", "text_projection"):
        if name in renamed:
            renamed[name] = renamed[name].T.contiguous()
    for name in list(renamed):
        found = _QUERY.fullmatch(name)
        if found:
            path, kind = found.groups()
            names = [f"{path}{part}_proj.{kind}" for part in "qkv"]
            absent = [part for part in names if part not in renamed]
            if absent:
                raise UserError(f"init: these weights of CLIP lack '{absent[0]}'")
            renamed[f"{path}in_proj_{kind}"] = torch.cat([renamed.pop(part) for part in names])
    return renamed


def _rename(name: str) -> str:
    for pattern, ours in _RENAMED.items():
        name, done = re.subn(f"^{pattern}", ours, name)
        if done:
            break
    for theirs, ours in _RENAMED_IN_BLOCK.items():
        name = name.replace(theirs, ours)
    return name


def denying_tower(weights: Weights) -> Weights:
    """Return CLIPN's second text tower, ``transformer_no.…``, by the names of the first."""
    first_part = re.compile(
        r"^(transformer|token_embedding|positional_embedding|ln_final|text_projection)_no\b"
    )
    found = {first_part.sub(r"\1", name): v for name, v in weights.items() if first_part.match(name)}
    if not found:
        raise UserError(
            "init: these weights have no second text tower ('transformer_no.…'); clipn needs those of CLIPN"
        )
    return found


def count_layers(weights: Weights, path: str) -> int:
    """Return how many blocks the transformer at ``path`` has."""
    numbers = re.compile(rf"^{re.escape(path)}resblocks\.(\d+)\.")
    return len({found.group(1) for found in map(numbers.match, weights) if found})


def load_tower(tower: nn.Module, weights: Weights, prefix: str = "") -> None:
    """Copy the weights under ``prefix`` into a tower; name the first that does not fit."""
    own = tower.state_dict()
    given = {name.removeprefix(prefix): v for name, v in weights.items() if name.startswith(prefix)}
    for name, wanted in own.items():
        if name not in given:
            raise UserError(f"init: these weights of CLIP lack '{prefix}{name}'")
        if given[name].shape != wanted.shape:
            shapes = f"{tuple(given[name].shape)}, not {tuple(wanted.shape)}"
            raise UserError(f"init: '{prefix}{name}' is {shapes}: it is of another kind of CLIP")
    if prefix:
        for name in given:
            if name not in own:
                raise UserError(f"init: '{prefix}{name}' is no part of CLIP: it is of another kind of CLIP")
    tower.load_state_dict({name: given[name] for name in own})
