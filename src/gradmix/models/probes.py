"""Probes: further questions to a trained network about an image, for the detectors that need the answers.

A head sees the embedding alone; a probe sees the image too, and may call the network again: on the image
turned, on its reconstruction. It is described by plain values, as heads are, and is in the model file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..errors import UserError, choose


@dataclass(frozen=True)
class Sizes:
    """The sizes of the network that a probe belongs to."""

    feature_dim: int
    num_classes: int
    channels: int
    image_size: int


class Probe(nn.Module):
    """Images and their embeddings to further outputs. Its ``__init__`` takes the Sizes and the settings."""

    kind: str

    def describe(self) -> dict[str, Any]:
        """Return what :func:`build_probe` needs to build this probe again, as JSON can hold it."""
        raise NotImplementedError

    def forward(self, network: nn.Module, x: Tensor, z: Tensor) -> dict[str, Tensor]:
        """Return outputs (N, …) by name, of images x (N, C, H, W) with embeddings z (N, d)."""
        raise NotImplementedError


PROBES: dict[str, Callable[..., Probe]] = {}


def build_probe(description: Mapping[str, Any], sizes: Sizes) -> Probe:
    """Build the probe that ``Probe.describe`` described."""
    settings = dict(description)
    kind = choose("probe", str(settings.pop("kind", "")), PROBES)
    try:
        return PROBES[kind](sizes, **settings)
    except TypeError as error:
        raise UserError(f"probe '{kind}' cannot be built from {settings}: {error}") from error
