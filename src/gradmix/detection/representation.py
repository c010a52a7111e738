"""For scores that work on h or on z: on h where the training images have it, and then for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from .outputs import Outputs, require_finite

_KEY = "on_penultimate"


@dataclass(frozen=True)
class Representation:
    """Which of the two a detector was fitted to."""

    penultimate: bool = False

    @staticmethod
    def choose(train: Outputs) -> Representation:
        """Choose the penultimate activation where there is one, else the features."""
        return Representation(train.penultimate is not None)

    def read(self, outputs: Outputs) -> Tensor:
        """Return that part of the outputs (N, d), finite; refuse outputs without it."""
        if not self.penultimate:
            return require_finite(outputs.features, "features")
        if outputs.penultimate is None:
            raise UserError(
                "the detector was fitted to penultimate activations, and these outputs have none; "
                "extract them with the same network"
            )
        return require_finite(outputs.penultimate, "penultimate activations")

    def state(self) -> dict[str, Tensor]:
        return {_KEY: torch.tensor([self.penultimate])}

    @staticmethod
    def from_state(state: Mapping[str, Tensor]) -> Representation:
        return Representation(bool(state[_KEY]))
