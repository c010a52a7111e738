"""Supervised and self-supervised contrastive learning with mixed views: the paper's method.

    L = θ·L_supcon + λ·(L_simclr + w·L_simclr^mixed)

SupCon alone (λ = 0), SimCLR alone (θ = 0), both (mixer none), and both with Mixup, CutMix or GradMix
are all this one file. A step never runs the network twice on the same images: the losses are
differentiated with respect to the embeddings first (cheap), and these cached gradients are then sent
back through each view's own graph when it is that view's turn. View 1 goes first, so the gradient
that LayerCAM needs at the layers of view 1 has just passed through them when the mixed view is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError, choose
from ..losses import nt_xent, nt_xent_clean_negatives, nt_xent_one_way, supcon
from ..losses.supcon import DENOMINATORS
from ..mixing import Mixer
from .interface import Stage, Views, detach_losses
from .mixed_views import MixingMethod, MixingSettings, read_gradient, unit


@dataclass(frozen=True)
class GradMixSettings(MixingSettings):
    """The objective; the mixing's fields are those of :class:`MixingSettings`."""

    theta: float = 1.0  # weight θ of the supervised term
    lam: float = 1.0  # weight λ of the self-supervised terms
    supcon_temperature: float = 0.05
    simclr_temperature: float = 0.05
    mixed_temperature: float = 0.05
    supcon_denominator: str = "negatives"  # negatives (paper) or all (Khosla et al.)
    pairing: str = "cross"  # cross: one mixed view per image; symmetric: two
    target: str = "objective"  # what the maps explain: objective, ssl or similarity

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("denominator", self.supcon_denominator, DENOMINATORS)
        choose("pairing", self.pairing, ("cross", "symmetric"))
        choose("target", self.target, ("objective", "ssl", "similarity"))
        self.require_positive("supcon_temperature", "simclr_temperature", "mixed_temperature")
        if self.theta < 0 or self.lam < 0 or self.theta + self.lam == 0:
            raise UserError(f"theta and lam must not be negative nor both 0, not {self.theta} and {self.lam}")


class GradMixMethod(MixingMethod):
    """L = θ·L_supcon + λ·(L_simclr + w·L_simclr^mixed): the paper's method; see the module.

    ``settings`` are :class:`GradMixSettings`. λ = 0 leaves SupCon, θ = 0 SimCLR, and ``mixer: none`` both.
    """

    Settings = GradMixSettings
    unit_features = True
    settings: GradMixSettings

    def _mixer_in_use(self) -> Mixer | None:
        # Without the self-supervised term there is nothing that a mixed view could be paired in.
        return self.settings.make_mixer() if self.settings.lam else None

    def _sign_of_maps(self) -> str:
        # A similarity is no loss: its gradient points to the evidence already.
        return "printed" if self.settings.target == "similarity" else super()._sign_of_maps()

    def passes(self, stage: Stage) -> float:
        """Return three for each view: two clean ones, and one or two that are mixed."""
        mixed = 0 if self.mixer is None else 1 if self.settings.pairing == "cross" else 2
        return 3.0 * (2 + mixed)

    def step(self, views: Views, generator: torch.Generator, scale: float = 1.0) -> dict[str, Tensor]:
        if self.mixer is None:
            return self._plain(views, scale)
        if self.settings.pairing == "cross":
            return self._cross(views, self.mixer, generator, scale)
        return self._symmetric(views, self.mixer, generator, scale)

    def _plain(self, views: Views, scale: float) -> dict[str, Tensor]:
        z1, z2 = self.embed(views.v1), self.embed(views.v2)
        parts = self._clean_losses(z1, z2, views.labels)
        torch.autograd.backward(scale * parts["loss"])
        return detach_losses(parts)

    def _cross(
        self, views: Views, mixer: Mixer, generator: torch.Generator, scale: float
    ) -> dict[str, Tensor]:
        """Pair mixed view 1 (anchor) with clean view 2 (positive): three passes each way, as CutMix."""
        s = self.settings
        z1, activations = self._embed_with_activations(views.v1, mixer)
        z2 = self.embed(views.v2)
        cut1, cut2 = _leaf(z1), _leaf(z2)
        parts = self._clean_losses(cut1, cut2, views.labels)
        gradient1, gradient2 = torch.autograd.grad(scale * parts["loss"], (cut1, cut2))

        maps: Tensor | None = None
        if activations and s.target != "objective":
            (toward,) = torch.autograd.grad(self._target(cut1, cut2), cut1)
            maps = self._maps(
                activations, torch.autograd.grad(z1, activations, toward, retain_graph=True), views.v1
            )
        for activation in activations:
            activation.retain_grad()
        torch.autograd.backward(z1, gradient1)
        if activations and maps is None:
            maps = self._maps(activations, [read_gradient(a) for a in activations], views.v1, scale)
        del z1, activations  # view 1's graph is done with; the mixed view may have its memory

        mixed = self._mix(views.v1, mixer, maps, generator)
        zm = self.embed(mixed.images)
        cutm = _leaf(zm)
        pair = nt_xent_one_way(unit(cutm), unit(cut2), s.mixed_temperature, self._weight(mixed))
        gradientm, further2 = torch.autograd.grad(scale * s.lam * pair, (cutm, cut2))
        torch.autograd.backward([z2, zm], [gradient2 + further2, gradientm])
        return detach_losses(parts | {"loss": parts["loss"] + s.lam * pair, "mixed": pair})

    def _symmetric(
        self, views: Views, mixer: Mixer, generator: torch.Generator, scale: float
    ) -> dict[str, Tensor]:
        """Pair clean view 1 with mixed view 2 and the reverse; maps cost a backward from z to the layers."""
        s = self.settings
        z1, activations1 = self._embed_with_activations(views.v1, mixer)
        z2, activations2 = self._embed_with_activations(views.v2, mixer)
        cut1, cut2 = _leaf(z1), _leaf(z2)
        parts = self._clean_losses(cut1, cut2, views.labels)

        maps1: Tensor | None = None
        maps2: Tensor | None = None
        if activations1:
            target = parts["loss"] if s.target == "objective" else self._target(cut1, cut2)
            toward1, toward2 = torch.autograd.grad(target, (cut1, cut2), retain_graph=True)
            maps1 = self._maps(
                activations1, torch.autograd.grad(z1, activations1, toward1, retain_graph=True), views.v1
            )
            maps2 = self._maps(
                activations2, torch.autograd.grad(z2, activations2, toward2, retain_graph=True), views.v2
            )
        mixed1 = self._mix(views.v1, mixer, maps1, generator)
        mixed2 = self._mix(views.v2, mixer, maps2, generator)
        zm1, zm2 = self.embed(mixed1.images), self.embed(mixed2.images)
        cutm1, cutm2 = _leaf(zm1), _leaf(zm2)
        unit1, unit2 = unit(cut1), unit(cut2)
        tau = s.mixed_temperature
        pair = 0.5 * (
            nt_xent_clean_negatives(unit1, unit(cutm2), unit2, tau, self._weight(mixed2))
            + nt_xent_clean_negatives(unit2, unit(cutm1), unit1, tau, self._weight(mixed1))
        )
        loss = parts["loss"] + s.lam * pair
        gradients = torch.autograd.grad(scale * loss, (cut1, cut2, cutm1, cutm2))
        torch.autograd.backward([z1, z2, zm1, zm2], gradients)
        return detach_losses(parts | {"loss": loss, "mixed": pair})

    def _clean_losses(self, z1: Tensor, z2: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return θ·L_supcon + λ·L_simclr of two embeddings (N, d), and its parts."""
        s = self.settings
        unit1, unit2 = unit(z1), unit(z2)
        parts: dict[str, Tensor] = {}
        loss = z1.new_zeros(())
        if s.theta:
            both = torch.cat([unit1, unit2])
            parts["supcon"] = supcon(both, labels.repeat(2), s.supcon_temperature, s.supcon_denominator)
            loss = loss + s.theta * parts["supcon"]
        if s.lam:
            parts["simclr"] = nt_xent(unit1, unit2, s.simclr_temperature)
            loss = loss + s.lam * parts["simclr"]
        return {"loss": loss, **parts}

    def _target(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Return what the maps explain when it is not the objective itself."""
        unit1, unit2 = unit(z1), unit(z2)
        if self.settings.target == "ssl":
            return nt_xent(unit1, unit2, self.settings.simclr_temperature)
        return (unit1 * unit2).sum()


def _leaf(z: Tensor) -> Tensor:
    """Return z (N, d) with no history: where the loss's graph ends and the network's begins."""
    return z.detach().requires_grad_()
