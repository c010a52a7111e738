"""Training nothing: the encoder's features as they are, for weights that somebody else has trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from .interface import Method, Views

NAME = "frozen"


@dataclass(frozen=True)
class FrozenSettings:
    """There is nothing to set."""


class Frozen(Method):
    """No objective, and so no step: :func:`gradmix.recognition.fit` indexes the features straight away."""

    Settings = FrozenSettings
    unit_features = True  # whatever trained the encoder, neighbours are compared by their direction
    view_count = 1

    def step(self, views: Views, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
        raise UserError(
            "method frozen trains nothing; give its images to gradmix.fit, or choose another method"
        )
