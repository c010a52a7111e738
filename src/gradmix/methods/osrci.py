"""OSRCI, counterfactual images (Neal et al. 2018): images near those of a class, but of none.

The players and the fine-tuning are in :mod:`.latent_players`. Between them, from the latent z₀ = E(x) of a
training image, z walks to where the classifier sees the unknown, and stays near:

    z ← S( z − s · ∇ [ −log P(unknown | G(z)) + ‖z − z₀‖² ] ),     s = 0.1, 100 times

S makes the vector at every position one of unit length. ``counterfactual: released`` is what the released
code does instead: a distance of two means that holds z nowhere, a gradient times the loss, other groups of
unit length, and BatchNorm and dropout in training mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet
from ..errors import UserError, choose
from ..progress import progress
from .latent_players import TOGETHER, LatentPlayers, LatentPlayersSettings, unknown_loss

COUNTERFACTUALS = ("paper", "released")


@dataclass(frozen=True)
class OSRCISettings(LatentPlayersSettings):
    """The players, and the walk to the unknown."""

    counterfactual: str = "paper"  # or released: what the released code does instead
    counterfactual_steps: int = 100
    counterfactual_speed: float = 0.1  # s
    distance_weight: float = 1.0  # of ‖z − z₀‖²

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("counterfactual", self.counterfactual, COUNTERFACTUALS)
        if self.counterfactual_steps < 1:
            raise UserError(f"counterfactual_steps must be at least 1, not {self.counterfactual_steps}")
        if not self.counterfactual_speed > 0:
            raise UserError(f"counterfactual_speed must be positive, not {self.counterfactual_speed}")
        if not self.distance_weight >= 0:
            raise UserError(f"distance_weight must not be negative, not {self.distance_weight}")


class OSRCI(LatentPlayers):
    """A classifier that has seen counterfactual images; see the module."""

    Settings = OSRCISettings
    detector = "osrci"
    name = "osrci"
    settings: OSRCISettings

    def project(self, z: Tensor) -> Tensor:
        """Return latent maps of unit length per position; as released: per run of L consecutive numbers."""
        if self.settings.counterfactual == "paper":
            return super().project(z)
        return F.normalize(z.reshape(len(z), -1, self.settings.latent_channels), dim=2).reshape(z.shape)

    def make_unknown(self, images: ImageSet, generator: torch.Generator) -> Tensor:
        s = self.settings
        released = s.counterfactual == "released"
        self.train(released)
        walk = walk_as_released if released else walk_to_unknown
        how = (s.counterfactual_steps, s.counterfactual_speed, s.distance_weight)
        made = []

        def loss_of(z: Tensor) -> Tensor:
            return unknown_loss(self.logits(self.network(self.see(self.decode(z)))))

        with progress("counterfactual images", s.made_images) as advance:
            for start in range(0, s.made_images, TOGETHER):
                n = min(TOGETHER, s.made_images - start)
                with torch.no_grad():
                    z = self.encode(self.draw_images(n, images, generator))
                z = walk(z, loss_of, self.project, *how)
                with torch.no_grad():
                    made.append(self.decode(z))
                advance(n)
        return torch.cat(made)


Loss = Callable[[Tensor], Tensor]


def walk_to_unknown(
    start: Tensor,
    loss_of: Loss,
    project: Callable[[Tensor], Tensor],
    steps: int,
    speed: float,
    distance_weight: float,
) -> Tensor:
    """Return where z (N, …) gets to, each row by itself, down loss_of(z) (N,) + w·‖z − start‖²."""
    z = start
    for _ in range(steps):
        z = z.detach().requires_grad_(True)
        loss = loss_of(z) + distance_weight * (z - start).flatten(1).square().sum(1)
        (gradient,) = torch.autograd.grad(loss.sum(), z)
        z = project(z.detach() - speed * gradient)
    return z.detach()


def walk_as_released(
    start: Tensor,
    loss_of: Loss,
    project: Callable[[Tensor], Tensor],
    steps: int,
    speed: float,
    distance_weight: float,
) -> Tensor:
    """Return where z (N, …) gets to in the released code.

    The loss is one number for the batch, mean loss_of(z) + w·(mean z − mean start)², and the gradient is
    multiplied by it: that of half its square.
    """
    z = start
    for _ in range(steps):
        z = z.detach().requires_grad_(True)
        loss = loss_of(z).mean() + distance_weight * (z.mean() - start.mean()).square()
        (gradient,) = torch.autograd.grad(loss, z)
        z = project(z.detach() - speed * loss.detach() * gradient)
    return z.detach()
