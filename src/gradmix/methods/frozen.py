"""Training nothing: the encoder's features as they are, for weights that somebody else has trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..models import ModelSettings, NetworkSpec
from .interface import Method

NAME = "frozen"


@dataclass(frozen=True)
class FrozenSettings:
    """There is nothing to set."""


class Frozen(Method):
    """No objective, and so no step: :func:`gradmix.recognition.fit` indexes the features straight away."""

    Settings = FrozenSettings
    unit_features = True  # whatever trained the encoder, neighbours are compared by their direction
    view_count = 1
    needs_training = False

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network without a projection: an untrained one only blurs the encoder's features.

        With a head only if there are weights for it (``init_head``).
        """
        spec = replace(super().describe_network(plain, settings, model, num_classes), projection="none")
        if not model.init_head:
            return spec
        return replace(spec, head={"kind": "linear", "classes": num_classes, "bias": model.classifier_bias})
