"""What every method with a mixed view shares: the recipe's mixing fields, the maps, the mixing, the weight.

A method decides when in its step the gradient at the layers is there; from then on this file knows
what to do with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attribution import Capture, aggregate
from ..attribution.cam import MAPS, NORMALIZATIONS
from ..errors import UserError, choose
from ..mixing import MIXERS, CutMix, GradMix, Mixed, Mixer, Mixup, derangement
from ..models import Network
from ..world import ALONE, World
from .interface import Embedder, Method


@dataclass(frozen=True)
class MixingSettings:
    """How a view is mixed and what its loss weighs."""

    mixer: str = "gradmix"  # gradmix, cutmix, mixup, none
    mix_weight: str = "area"  # area (γ², paper) or complement (1 − γ²)
    gamma_min: float = 0.1  # side of the patch / side of the image ~ U(gamma_min, gamma_max)
    gamma_max: float = 0.5
    gamma_per: str = "sample"  # one γ per sample or per batch
    alpha: float | None = None  # Beta(α, α) for Mixup (1 if not given) and CutMix (γ as above if not given)
    locate: str = "peak"  # peak: centre the patch on the map's maximum; window: cover the largest sum
    patch: str = "resize"  # resize: the whole partner, shrunk; crop: the partner's own pixels there
    attribution: str = "layercam"  # layercam or gradcam
    layers: tuple[str, ...] = ("conv5_2",)
    map_normalize: str = "none"  # none (raw sum, paper), per_layer, per_image

    def __post_init__(self) -> None:
        choose("mixer", self.mixer, (*MIXERS, "none"))
        choose("mix_weight", self.mix_weight, ("area", "complement"))
        choose("attribution", self.attribution, MAPS)
        choose("map_normalize", self.map_normalize, NORMALIZATIONS)
        self.make_mixer()

    def make_mixer(self) -> Mixer | None:
        """The mixer these settings describe; its own checks run here."""
        if self.mixer == "gradmix":
            return GradMix(self.gamma_min, self.gamma_max, self.gamma_per, self.locate, self.patch)
        if self.mixer == "cutmix":
            return CutMix(self.alpha, self.gamma_min, self.gamma_max, self.gamma_per, self.patch)
        if self.mixer == "mixup":
            return Mixup(1.0 if self.alpha is None else self.alpha, self.gamma_per)
        return None

    def require_positive(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be positive, not {getattr(self, name)}")


class MixingMethod(Method):
    """A method whose objective has a term for mixed views, if ``self.mixer`` is not None."""

    settings: MixingSettings

    def __init__(
        self,
        network: Network,
        settings: MixingSettings,
        *,
        embedder: Embedder | None = None,
        generator: torch.Generator | None = None,
        world: World = ALONE,
    ) -> None:
        super().__init__(network, settings, embedder=embedder, generator=generator, world=world)
        self.mixer = self._mixer_in_use()
        if self.mixer is not None and self.mixer.needs_maps:
            Capture(network.encoder, settings.layers)  # a misspelt layer is found before training, not in it

    def _mixer_in_use(self) -> Mixer | None:
        return self.settings.make_mixer()

    def _embed_watched(self, view: Tensor, mixer: Mixer | None) -> tuple[Tensor, list[Tensor]]:
        """(z, activations of the layers); none are kept where no maps are wanted."""
        if mixer is None or not mixer.needs_maps:
            return self.embed(view), []
        with Capture(self.network.encoder, self.settings.layers) as capture:
            return self.embed(view), capture.activations()

    @torch.no_grad()
    def _maps(self, activations: Sequence[Tensor], gradients: Sequence[Tensor], view: Tensor) -> Tensor:
        make = MAPS[self.settings.attribution]
        layers = [make(a.detach().float(), g.float()) for a, g in zip(activations, gradients, strict=True)]
        size, normalize = (view.shape[2], view.shape[3]), self.settings.map_normalize
        if normalize == "per_layer":  # by the largest value in the batch: that of all processes
            own = self.world.rows(len(view) * self.world.size)
            return aggregate([self.world.union(layer) for layer in layers], size, normalize)[own]
        return aggregate(layers, size, normalize)

    @torch.no_grad()
    def _mix(self, view: Tensor, mixer: Mixer, maps: Tensor | None, generator: torch.Generator) -> Mixed:
        partners = self.world.picked(view, derangement(len(view) * self.world.size, generator))
        if self.world.size == 1:  # a mixer that knows of no other processes will do
            return mixer(view, partners, maps, generator)
        return mixer(view, partners, maps, generator, self.world)

    def _weight(self, mixed: Mixed) -> Tensor:
        """What each mixed image of the whole batch weighs, (N,)."""
        share = self.world.union(mixed.share)
        return share if self.settings.mix_weight == "area" else 1 - share


def unit(z: Tensor) -> Tensor:
    return F.normalize(z, dim=1)


def gradient_of(activation: Tensor) -> Tensor:
    """What a backward left at a layer that was asked to retain it."""
    if activation.grad is None:
        raise UserError("a layer of the recipe has no influence on the embedding; choose others in 'layers'")
    return activation.grad


def detached(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in parts.items()}
