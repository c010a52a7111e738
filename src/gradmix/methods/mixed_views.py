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
from ..attribution.cam import MAP_NORMALIZATIONS, MAPS, SIGNS, turn_towards
from ..errors import UserError, choose
from ..mixing import MIXERS, CutMix, GradMix, Mixed, Mixer, Mixup, derangement
from ..models import Network
from .interface import Context, Method


@dataclass(frozen=True)
class MixingSettings:
    """How a view is mixed and what its loss weighs."""

    mixer: str = "gradmix"  # gradmix, cutmix, mixup, none
    mix_weight: str = "area"  # area (γ², paper) or complement (1 − γ²)
    gamma_min: float = 0.1  # side of the patch / side of the image ~ U(gamma_min, gamma_max)
    gamma_max: float = 0.5
    gamma_per: str = "sample"  # one γ per sample or per batch
    alpha: float | None = None  # Beta(α, α) for Mixup (1 if not given) and CutMix (γ as above if not given)
    locate: str = "peak"  # peak: center the patch on the map's maximum; window: cover the largest sum
    patch: str = "resize"  # resize: the whole partner, shrunk; crop: the partner's own pixels there
    attribution: str = "layercam"  # layercam or gradcam
    attribution_sign: str = "printed"  # of the loss's gradient: printed, ReLU(∂L/∂A) ⊙ A; evidence, −∂L/∂A
    layers: tuple[str, ...] = ("conv5_2",)  # of the encoder, whose maps are added up
    map_normalize: str = "none"  # none (raw sum, paper), per_layer, per_image

    def __post_init__(self) -> None:
        choose("mixer", self.mixer, (*MIXERS, "none"))
        choose("mix_weight", self.mix_weight, ("area", "complement"))
        choose("attribution", self.attribution, MAPS)
        choose("attribution_sign", self.attribution_sign, SIGNS)
        choose("map_normalize", self.map_normalize, MAP_NORMALIZATIONS)
        self.make_mixer()

    def make_mixer(self) -> Mixer | None:
        """Return the mixer that these settings describe; its own checks run here."""
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

    def __init__(self, network: Network, settings: MixingSettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        self.mixer = self._mixer_in_use()
        if self.mixer is not None and self.mixer.needs_maps:
            Capture(network.encoder, settings.layers)  # a misspelt layer is found before training, not in it

    def _mixer_in_use(self) -> Mixer | None:
        return self.settings.make_mixer()

    def _embed_with_activations(self, view: Tensor, mixer: Mixer | None) -> tuple[Tensor, list[Tensor]]:
        """Return (z, activations of the layers); the list is empty where no maps are needed."""
        if mixer is None or not mixer.needs_maps:
            return self.embed(view), []
        with Capture(self.network.encoder, self.settings.layers) as capture:
            return self.embed(view), capture.activations()

    @torch.no_grad()
    def _maps(
        self, activations: Sequence[Tensor], gradients: Sequence[Tensor], view: Tensor, scale: float = 1.0
    ) -> Tensor:
        """Return the maps (n, H, W); ``gradients`` are ``scale`` times those of what the maps explain."""
        make, factor = MAPS[self.settings.attribution], scale * self.gradient_factor
        sign = self._sign_of_maps()
        layers = [
            make(a.detach().float(), turn_towards(g.float(), sign))
            for a, g in zip(activations, gradients, strict=True)
        ]
        if factor != 1:  # a map is proportional to the gradient
            layers = [layer / factor for layer in layers]
        size = (view.shape[2], view.shape[3])
        return aggregate(layers, size, self.settings.map_normalize, self.largest)

    def _sign_of_maps(self) -> str:
        """Return the sign with which the maps take the gradient of what they explain."""
        return self.settings.attribution_sign

    @torch.no_grad()
    def _mix(self, view: Tensor, mixer: Mixer, maps: Tensor | None, generator: torch.Generator) -> Mixed:
        n = self.batch_size(view)
        partners = self.take_rows(view, derangement(n, generator))
        return mixer.apply(view, partners, maps, self.own_rows(mixer.draw(n, generator)))

    def _weight(self, mixed: Mixed) -> Tensor:
        """Return what each mixed image of the whole batch weighs, (N,)."""
        share = self.all_rows(mixed.share)
        return share if self.settings.mix_weight == "area" else 1 - share


def unit(z: Tensor) -> Tensor:
    return F.normalize(z, dim=1)


def read_gradient(activation: Tensor) -> Tensor:
    """Return what a backward left at a layer that was asked to retain it."""
    if activation.grad is None:
        raise UserError("a layer of the recipe has no influence on the embedding; choose others in 'layers'")
    return activation.grad
