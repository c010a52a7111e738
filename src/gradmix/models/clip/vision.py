"""CLIP's image tower, a vision transformer (Dosovitskiy et al. 2021; Radford et al. 2021)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import UserError
from ..bodies import Body, Plan
from .transformer import Transformer, count_heads
from .weights import Weights, count_layers, load_tower, use_openai_names

KIND = "clip"
_PREFIX = "visual."
_IMAGES_AT_ONCE = 64  # where no gradient is wanted: a batch of 512 would hold gigabytes between two layers


class VisionTower(Body):
    """Images (N, 3, S, S) to CLIP's image features (N, dim), not normalized.

    Its sizes are read off the weights that it starts from (``plan.weights``); a model file names them. The
    text half of the weights is kept in ``text_weights`` for the method that asks for it, and is no part of
    the network.
    """

    stem = "patches"

    def __init__(
        self,
        plan: Plan,
        activation: str = "quick_gelu",
        width: int = 0,
        layers: int = 0,
        patch: int = 0,
        dim: int = 0,
    ) -> None:
        super().__init__()
        weights = None if plan.weights is None else use_openai_names(plan.weights)
        if weights is not None:
            width, layers, patch, dim = read_sizes(weights)
        if not (width and layers and patch and dim):
            raise UserError(
                "CLIP methods start from CLIP's weights: --init FILE (.safetensors or a state dict), or "
                "hf://owner/name"
            )
        if plan.channels != 3:
            raise UserError("CLIP sees color images: set channels to 3")
        if plan.image_size % patch:
            raise UserError(f"image_size must be a multiple of {patch}, the side of this CLIP's patches")
        self.activation, self.width, self.layers, self.patch = activation, width, layers, patch
        self.dim, self.image_size, self.side = dim, plan.image_size, plan.image_size // patch
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding = nn.Parameter(width**-0.5 * torch.randn(width))
        self.positional_embedding = nn.Parameter(width**-0.5 * torch.randn(self.side**2 + 1, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = Transformer(width, layers, count_heads(width, wider=True), activation)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(width**-0.5 * torch.randn(width, dim))
        self.maps = nn.Identity()  # what the last block sees, as maps (N, width, h, w), for heat maps
        self.layer_names = {"patches": "maps"}
        self.text_weights: Weights | None = None
        if weights is not None:
            table = weights[f"{_PREFIX}positional_embedding"]
            weights[f"{_PREFIX}positional_embedding"] = resize_positions(table, self.side)
            load_tower(self, weights, _PREFIX)
            self.text_weights = {k: v for k, v in weights.items() if not k.startswith(_PREFIX)}

    def extra_repr(self) -> str:
        return f"{self.activation}, {self.image_size}"

    def resolve(self, description: Mapping[str, Any]) -> dict[str, Any]:
        sizes = {"width": self.width, "layers": self.layers, "patch": self.patch, "dim": self.dim}
        return {**description, "activation": self.activation, **sizes}

    def take_text_weights(self) -> Weights:
        """Return the text half of the weights, once: it is large."""
        weights, self.text_weights = self.text_weights, None
        if weights is None:
            raise UserError("this network has no text tower: it does not come from CLIP's own weights")
        return weights

    def forward(self, x: Tensor) -> Tensor:
        return self._in_parts(lambda part: self._project(self._last_block(part)[:, 0]), x)

    def patches(self, x: Tensor) -> Tensor:
        """Return one feature per patch (N, P, dim), not normalized.

        In the last block a patch goes the way of the values alone, for attention mixes it with the others.
        """
        return self._in_parts(lambda part: self._patches(self._until_last(part)), x)

    def all_features(self, x: Tensor) -> Tensor:
        """Return (N, 1 + P, dim), not normalized: :meth:`forward`'s first, then :meth:`patches`'s."""

        def both(part: Tensor) -> Tensor:
            tokens = self._until_last(part)
            whole = self._project(self.transformer.resblocks[-1](tokens)[:, :1])
            return torch.cat([whole, self._patches(tokens)], dim=1)

        return self._in_parts(both, x)

    def _until_last(self, x: Tensor) -> Tensor:
        """Return the tokens (N, 1 + P, width) that the last block sees."""
        if x.shape[-2:] != (self.image_size, self.image_size):
            raise UserError(f"this CLIP sees images of {self.image_size} pixels; leave start_size out")
        patches = self.conv1(x).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(x.shape[0], 1, -1)
        tokens = self.ln_pre(torch.cat([first, patches], dim=1) + self.positional_embedding)
        for block in self.transformer.resblocks[:-1]:
            tokens = block(tokens)
        maps = self.maps(tokens[:, 1:].transpose(1, 2).unflatten(2, (self.side, self.side)))
        return torch.cat([tokens[:, :1], maps.flatten(2).transpose(1, 2)], dim=1)

    def _last_block(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.transformer.resblocks[-1](self._until_last(x))
        return tokens

    def _patches(self, tokens: Tensor) -> Tensor:
        last = self.transformer.resblocks[-1]
        return self._project(last.without_attention(tokens[:, 1:]))  # type: ignore[operator]

    def _project(self, tokens: Tensor) -> Tensor:
        projected: Tensor = self.ln_post(tokens) @ self.proj
        return projected

    def _in_parts(self, compute: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or torch.compiler.is_exporting() or x.shape[0] <= _IMAGES_AT_ONCE:
            return compute(x)
        return torch.cat([compute(part) for part in torch.split(x, _IMAGES_AT_ONCE)])


def read_sizes(weights: Weights) -> tuple[int, int, int, int]:
    """Return (width, layers, patch, dim) of the image tower, from the shapes of its weights."""
    for name, dimensions in (("conv1.weight", 4), ("proj", 2), ("positional_embedding", 2)):
        found = weights.get(_PREFIX + name)
        if found is None:
            raise UserError(f"init: these weights of CLIP lack '{_PREFIX}{name}'")
        if found.ndim != dimensions:
            raise UserError(f"init: '{_PREFIX}{name}' is {tuple(found.shape)}: it is of another kind of CLIP")
    width, _, patch, _ = weights["visual.conv1.weight"].shape
    layers = count_layers(weights, f"{_PREFIX}transformer.")
    if not layers:
        raise UserError(f"init: these weights of CLIP lack '{_PREFIX}transformer.resblocks.0.ln_1.weight'")
    return width, layers, patch, weights["visual.proj"].shape[1]


def resize_positions(table: Tensor, side: int) -> Tensor:
    """Return positional embeddings (1 + side², width) of (1 + s², width), interpolated between the patches.

    The first is that of the class token, and stays.
    """
    before = round((len(table) - 1) ** 0.5)
    if before == side or before**2 + 1 != len(table):
        return table
    grid = table[1:].T.reshape(1, -1, before, before)
    grid = F.interpolate(grid, (side, side), mode="bicubic", align_corners=False, antialias=True)
    return torch.cat([table[:1], grid[0].flatten(1).T])
