"""Bodies: what stands around the plain encoder, or in place of it, in networks of another shape.

A body is an encoder to everybody else: images (N, C, H, W) to features (N, dim). It is described by plain
values, as heads are, so that a model file can be opened without the method that trained it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..errors import UserError, choose
from .staged import StagedEncoder


@dataclass(frozen=True)
class Plan:
    """What a body is built from: ``make_encoder(channels)`` gives the encoder of the recipe, for images of
    so many channels, and ``weights`` are the published ones to start from, if the recipe names some."""

    make_encoder: Callable[[int], StagedEncoder]
    channels: int
    image_size: int
    weights: Mapping[str, Tensor] | None = None


class Body(nn.Module):
    """Images (N, C, H, W) to features (N, dim). Its ``__init__`` takes a :class:`Plan` and the settings."""

    dim: int
    stem: str = "small"
    layer_names: dict[str, str]  # names of recipes to modules, in order; as those of StagedEncoder

    def resolve(self, description: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return its own description with what the weights told: a model file opens without these."""
        return description

    def finish_loading(self) -> None:
        """Compute what no file holds; called when a network has got its weights from a model file."""

    def extra_repr(self) -> str:
        """Return the settings that the weights do not tell: the key of the feature cache must know them."""
        return ""


BODIES: dict[str, Callable[..., Body]] = {}


def build_body(description: Mapping[str, Any], plan: Plan) -> Body:
    """Build the body that a network's description names."""
    settings = dict(description)
    kind = choose("body", str(settings.pop("kind", "")), BODIES)
    try:
        return BODIES[kind](plan, **settings)
    except TypeError as error:
        raise UserError(f"body '{kind}' cannot be built from {settings}: {error}") from error
