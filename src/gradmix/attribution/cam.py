"""Attribution maps as pure functions of activations A and gradients ∂L/∂A, both (N, K, h, w)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..errors import choose

MAP_NORMALIZATIONS = ("none", "per_layer", "per_image")
SIGNS = ("printed", "evidence")


def layercam_map(activation: Tensor, gradient: Tensor) -> Tensor:
    """Return M = ReLU( Σ_k ReLU(∂L/∂A^k) ⊙ A^k ): (N, h, w). Jiang et al. 2021."""
    return torch.einsum("nkhw,nkhw->nhw", gradient.relu(), activation).relu()


def gradcam_map(activation: Tensor, gradient: Tensor) -> Tensor:
    """Return M = ReLU( Σ_k α_k A^k ), α_k the mean of ∂L/∂A^k: (N, h, w). Selvaraju et al. 2017."""
    return torch.einsum("nk,nkhw->nhw", gradient.mean((2, 3)), activation).relu()


def turn_towards(gradient: Tensor, sign: str) -> Tensor:
    """Return the gradient of a loss as the maps take it: ``printed`` as it is, ``evidence`` turned round.

    ReLU(∂L/∂A) ⊙ A is where more activation raises the loss; ReLU(−∂L/∂A) ⊙ A where it lowers it, that is,
    what speaks for the answer.

    >>> activation, gradient = torch.tensor([[[[3.0, 2.0]]]]), torch.tensor([[[[1.0, -1.0]]]])
    >>> layercam_map(activation, turn_towards(gradient, "evidence"))
    tensor([[[0., 2.]]])
    """
    return gradient if sign == "printed" else -gradient


MAPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"layercam": layercam_map, "gradcam": gradcam_map}


def aggregate(
    maps: Sequence[Tensor],
    size: tuple[int, int],
    normalize: str = "none",
    largest: Callable[[Tensor], Tensor] = torch.amax,
) -> Tensor:
    """Upsample each layer's map (N, h, w) bilinearly to ``size`` and sum: (N, H, W).

    ``"none"`` sums raw maps (the paper as printed; what the activated-area analysis needs);
    ``"per_layer"`` first divides each layer's upsampled maps by their largest value in the batch,
    ``"per_image"`` by the largest value in each image, so that no layer drowns the others. ``largest``
    finds the largest value in the batch, for maps that are only some of it.
    """
    choose("map normalisation", normalize, MAP_NORMALIZATIONS)
    total = torch.zeros(len(maps[0]), *size, dtype=maps[0].dtype, device=maps[0].device)
    for layer in maps:
        up = torch.nn.functional.interpolate(layer[:, None], size, mode="bilinear", align_corners=False)[:, 0]
        if normalize == "per_layer":
            up = up / largest(up).clamp(min=torch.finfo(up.dtype).tiny)
        elif normalize == "per_image":
            up = up / up.amax((1, 2), keepdim=True).clamp(min=torch.finfo(up.dtype).tiny)
        total += up
    return total
