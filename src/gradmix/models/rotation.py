"""The probe of rotations: which way is the image up?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .probes import PROBES, Probe, Sizes

TURNS = 4  # by 0, 90, 180 and 270 degrees


def turn(images: Tensor) -> list[Tensor]:
    """Return images (N, C, S, S) turned by 0, 90, 180 and 270 degrees."""
    return [images, *(torch.rot90(images, k, (2, 3)) for k in range(1, TURNS))]


class RotationProbe(Probe):
    """For each of the four turns of an image, the logits of a linear head for which turn it is.

    The output ``"rotation"`` is (N, 4, 4): row r has the four logits of the image turned by r · 90 degrees.
    It takes three more passes through the network.
    """

    kind = "rotation"

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head = nn.Linear(sizes.feature_dim, TURNS)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def logits(self, embeddings: Sequence[Tensor]) -> Tensor:
        """Return (N, 4, 4), given the embeddings (N, d) of each turn."""
        logits: Tensor = self.head(torch.stack(list(embeddings), dim=1))
        return logits

    def forward(self, network: nn.Module, x: Tensor, z: Tensor) -> dict[str, Tensor]:
        return {"rotation": self.logits([z, *(network(turned) for turned in turn(x)[1:])])}


PROBES[RotationProbe.kind] = RotationProbe
