"""ARPL with confusing samples (Chen et al. 2021): a generator makes images that no class should claim.

    p = softmax(d),  d_k = ‖z − P_k‖² / dim(z)  (no dot term),   E = exp( mean_i Σ_k p_ik log p_ik )

E is 1/K where all images are of no class, and 1 where all are surely of one. A confusing step has three
parts, for real images x and made ones G(n):

    D:        BCE(D(x), 1) + BCE(D(G(n)), 0)
    G:        BCE(D(G(n)), 1) + β·E(G(n))                    real to D, of no class to the network
    network:  L_ARPL(x) + β·E(G(n′)),   n′ fresh, G at rest

The network has a BatchNorm of its own for made images (:class:`Domain`). Epochs alternate: a confusing one,
then one of plain ARPL; or ``confuse_every`` says how many steps there are per confusing one. Generator and
discriminator are no part of the model: it scores as ARPL does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet
from ..errors import UserError
from ..models import Domain, Network
from ..models.generators import Discriminator, NoiseGenerator, draw_noise, resize
from .arpl import ARPL, ARPLSettings
from .checks import require_two_classes
from .interface import Context, Progress, Stage, Views

MIN_WIDTH = 8


@dataclass(frozen=True)
class ARPLCSSettings(ARPLSettings):
    """ARPL's settings, and the players'."""

    confuse_weight: float = 0.1  # β, of the term for made images
    confuse_every: int = 0  # steps per confusing step; 0: every second epoch is confusing, as published
    noise_dim: int = 100
    gan_width: int = 512  # channels of the generator's first map; halved with every doubling of the side
    gan_lr: float = 2e-4  # of the generator's and of the discriminator's Adam

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.confuse_weight >= 0:
            raise UserError(f"confuse_weight must not be negative, not {self.confuse_weight}")
        if self.confuse_every < 0:
            raise UserError(f"confuse_every must be 0 (every second epoch) or more, not {self.confuse_every}")
        if self.noise_dim < 1:
            raise UserError(f"noise_dim must be at least 1, not {self.noise_dim}")
        if self.gan_width < MIN_WIDTH or self.gan_width & (self.gan_width - 1):
            raise UserError(f"gan_width must be a power of 2 from {MIN_WIDTH} on, not {self.gan_width}")
        if not self.gan_lr > 0:
            raise UserError(f"gan_lr must be positive, not {self.gan_lr}")


def confusion(distances: Tensor) -> Tensor:
    """Return E = exp(mean_i Σ_k p_k log p_k) of p = softmax(distances), (N, K): 1/K to 1.

    The mean is inside the exponential: the geometric mean over images.

    >>> round(float(confusion(torch.tensor([[2.5, 2.0]]))), 4), float(confusion(torch.zeros(3, 4)))
    (0.5154, 0.25)
    """
    log_p = distances.log_softmax(1)
    return (log_p.exp() * log_p).sum(1).mean().exp()


class ARPLCS(ARPL):
    """ARPL, a generator of confusing images and its discriminator; see the module."""

    Settings = ARPLCSSettings
    settings: ARPLCSSettings

    def __init__(self, network: Network, settings: ARPLCSSettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        s, c = settings, self.context
        self.generator = self.auxiliary(
            NoiseGenerator(s.noise_dim, c.channels, c.image_size, s.gan_width), s.gan_lr
        )
        self.discriminator = self.auxiliary(Discriminator(c.channels, c.image_size, s.gan_width), s.gan_lr)
        self.made_domain = Domain(network)
        self.embed_made = self.embedder(self.made_domain)

    def check_images(self, images: ImageSet) -> None:
        require_two_classes(images, "arpl-cs")

    def passes(self, stage: Stage) -> float:
        """Return those of a confusing step: three for known images, and for made ones twice three."""
        return 9.0

    @property
    def period(self) -> int:
        """Return every how many steps one is confusing; 0 stands for every second epoch."""
        return self.settings.confuse_every or 2

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        if not self.is_confusing(views.progress):
            return super().losses(views, generator)
        d_loss, g_loss = self.train_players(views.v1, generator)
        known = self.known_losses(self.embed(views.v1), views.labels)
        with torch.no_grad():
            made = self.make_images(views.v1, generator)
        confused = confusion(self.points.distances(self.embed_made(made)))
        known["loss"] = known["loss"] + self.settings.confuse_weight * confused
        return {**known, "confusion": confused, "discriminator": d_loss, "generator": g_loss}

    def train_players(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Take one step of the discriminator and one of the generator; return their losses."""
        made = self.make_images(images, generator)
        on_real = self.all_rows(self.discriminator(images))
        on_made = self.all_rows(self.discriminator(made.detach()))
        d_loss = bce(on_real, 1.0) + bce(on_made, 0.0)
        self.discriminator.descend(d_loss)
        fooled = bce(self.all_rows(self.discriminator(made)), 1.0)
        g_loss = fooled + self.settings.confuse_weight * confusion(
            self.points.distances(self.embed_made(made))
        )
        self.generator.descend(g_loss)
        return d_loss.detach(), g_loss.detach()

    def make_images(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """Return one's own rows of a batch of made images, of the size and normalization of ``like``."""
        noise = draw_noise(self.batch_size(like), (self.settings.noise_dim,), generator, like)
        pixels = resize(self.generator(self.own_rows(noise)), like.shape[-1])
        seen = pixels if self.context.normalizer is None else self.context.normalizer(pixels)
        return seen.contiguous(memory_format=torch.channels_last)

    def is_confusing(self, progress: Progress) -> bool:
        """Return whether a step has made images in it."""
        every = self.settings.confuse_every
        return progress.epoch % 2 == 0 if every == 0 else progress.step % every == 0


def bce(logits: Tensor, target: float) -> Tensor:
    """Return the binary cross-entropy of logits (N,) with one target for all."""
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))
