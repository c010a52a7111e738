"""What the patches of an image say, for the score GL-MCM (Miyai et al. 2023)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UserError
from ..probes import Probe, Sizes
from .head import TextHead
from .vision import VisionTower

_IMAGES_AT_ONCE = 64  # their cosines are (64, P, K): 50 MB for 196 patches and 1,000 classes


class PatchProbe(Probe):
    """``local_mcm`` (N, 1): the largest softmax of the cosines (τ = 1) of any patch with any class.

    It is another pass through the image tower.
    """

    kind = "patches"

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def forward(self, network: nn.Module, x: Tensor, z: Tensor) -> dict[str, Tensor]:
        tower, head = network.encoder, network.classifier
        if not isinstance(tower, VisionTower) or not isinstance(head, TextHead):
            raise UserError("patches are those of CLIP's image tower; this network has another one")
        if torch.compiler.is_exporting():  # to ONNX, where the number of images is not known
            return {"local_mcm": largest_share(tower, head, x)}
        parts = torch.split(x, _IMAGES_AT_ONCE)
        return {"local_mcm": torch.cat([largest_share(tower, head, part) for part in parts])}


def largest_share(tower: VisionTower, head: TextHead, x: Tensor) -> Tensor:
    """Return (N, 1): max over patches p and classes k of softmax(s_p)_k, of images (N, 3, S, S)."""
    shares = torch.softmax(head.cosines(tower.patches(x), head.text), dim=2)
    return shares.amax(dim=(1, 2))[:, None]
