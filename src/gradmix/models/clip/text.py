"""CLIP's text tower: from prompts to text features. Training and naming need it, answering does not."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import UserError
from .tokens import load_tokenizer, tokenize
from .transformer import Transformer, count_heads
from .weights import Weights, count_layers, load_tower

_LARGEST_SCALE = 100.0


class TextTower(nn.Module):
    """Token embeddings (N, T, width) to text features (N, dim) of unit length; frozen."""

    def __init__(self, weights: Weights, activation: str) -> None:
        super().__init__()
        for name in ("token_embedding.weight", "positional_embedding", "text_projection"):
            if name not in weights:
                raise UserError(f"init: these weights of CLIP lack '{name}'")
        words, width = weights["token_embedding.weight"].shape
        self.token_embedding = nn.Embedding(words, width)
        self.positional_embedding = nn.Parameter(torch.empty_like(weights["positional_embedding"]))
        layers = count_layers(weights, "transformer.")
        self.transformer = Transformer(width, layers, count_heads(width), activation)
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.empty(width, weights["text_projection"].shape[1]))
        load_tower(self, weights)
        self.eval().requires_grad_(False)

    @property
    def width(self) -> int:
        return self.positional_embedding.shape[1]

    @property
    def context(self) -> int:
        """The number of positions."""
        return len(self.positional_embedding)

    def forward(self, embedded: Tensor, ends: Tensor) -> Tensor:
        """Return text features (N, dim): what stands at position ``ends`` (N,) after the last block.

        No position sees those after it, so that what follows the last end need not be there.
        """
        x = self.transformer(embedded + self.positional_embedding[: embedded.shape[1]], causal=True)
        at_end = self.ln_final(x[torch.arange(len(x), device=x.device), ends])
        return F.normalize(at_end @ self.text_projection, dim=1)

    def embed(self, numbers: Tensor) -> Tensor:
        """Return token embeddings (N, T, width) of tokens (N, T)."""
        embedded: Tensor = self.token_embedding(numbers.to(self.positional_embedding.device))
        return embedded

    @torch.no_grad()
    def encode(self, texts: Sequence[str], offset: Tensor | None = None) -> Tensor:
        """Return the features (N, dim) of texts; ``offset`` (T, width) is added to their token embeddings."""
        numbers = tokenize(load_tokenizer(), texts)
        ends = numbers.argmax(dim=1)  # the mark of the end is the largest number
        embedded = self.embed(numbers[:, : int(ends.max()) + 1])
        if offset is not None:
            embedded = embedded + offset[: embedded.shape[1]].to(embedded)
        features: Tensor = self(embedded, ends.to(embedded.device))
        return features


def encode_names(
    tower: TextTower, names: Sequence[str], templates: Sequence[str], offset: Tensor | None = None
) -> Tensor:
    """Return one text feature per class (K, dim): the mean over the templates, made unit again."""
    features = [tower.encode([fill(template, name) for name in names], offset) for template in templates]
    return F.normalize(torch.stack(features).mean(0), dim=1)


def fill(template: str, name: str) -> str:
    """Return the template with the name in the place of {}."""
    return template.replace("{}", name)


def read_scale(weights: Weights) -> Tensor:
    """Return the factor between cosines and logits, a scalar: 100 in all published weights."""
    found = weights.get("logit_scale")
    return torch.tensor(_LARGEST_SCALE) if found is None else found.float().exp().clamp(max=_LARGEST_SCALE)
