"""The transformer of both towers of CLIP, by OpenAI's parameter names."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import choose

HEAD_WIDTH = 64
# Image towers of OpenCLIP whose heads are wider: ViT-H, ViT-g, ViT-bigG.
_WIDER_HEADS = {1280: 80, 1408: 88, 1664: 104}


class QuickGELU(nn.Module):
    """x·σ(1.702 x), what OpenAI's weights were trained with."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, type[nn.Module]] = {"quick_gelu": QuickGELU, "gelu": nn.GELU}


def count_heads(width: int, wider: bool = False) -> int:
    """Return the number of heads that an image tower (``wider``) or a text tower of this width has.

    >>> count_heads(768), count_heads(1280), count_heads(1280, wider=True)
    (12, 20, 16)
    """
    return max(1, width // (_WIDER_HEADS.get(width, HEAD_WIDTH) if wider else HEAD_WIDTH))


class Attention(nn.Module):
    """Self-attention; ``values`` is its value path alone, where every position sees itself only."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.normal_(self.in_proj_weight, std=width**-0.5)

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        """Return (N, T, width) of (N, T, width); ``causal``: a position sees those before it, and itself."""
        n, t, width = x.shape
        projected = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = projected.view(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out: Tensor = self.out_proj(seen.transpose(1, 2).reshape(n, t, width))
        return out

    def values(self, x: Tensor) -> Tensor:
        """Return (N, T, width): each position's own value, projected."""
        width = x.shape[-1]
        own = F.linear(x, self.in_proj_weight[2 * width :], self.in_proj_bias[2 * width :])
        out: Tensor = self.out_proj(own)
        return out


class MLP(nn.Module):
    """Two linear layers, the hidden one four times as wide."""

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.activation = ACTIVATIONS[choose("activation", activation, ACTIVATIONS)]()
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.c_proj(self.activation(self.c_fc(x)))
        return out


class Block(nn.Module):
    """x + attention(LN(x)), then x + MLP(LN(x))."""

    def __init__(self, width: int, heads: int, activation: str) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = MLP(width, activation)

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        x = x + self.attn(self.ln_1(x), causal)
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out

    def without_attention(self, x: Tensor) -> Tensor:
        """Return the block's output with the value path in place of the attention."""
        x = x + self.attn.values(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Transformer(nn.Module):
    """Blocks, one after the other."""

    def __init__(self, width: int, layers: int, heads: int, activation: str) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList([Block(width, heads, activation) for _ in range(layers)])

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        for block in self.resblocks:
            x = block(x, causal)
        return x
