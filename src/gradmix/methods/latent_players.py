"""What OSRCI and G-OpenMax share (Neal et al. 2018): four players, images made of them, and fine-tuning.

Stage A trains an encoder E into a latent space, a generator G out of it, a critic D, and the classifier C,
which is the network of the recipe. One step, in this order (x real images, n noise; σ⁺ is softplus):

    D:       mean σ⁺(D(G(n))) + w · mean σ⁺(−D(x)) + p · gradient penalty between the two  (w = 0.01, p = 10)
    G:       −w · mean D(G(E(x)))
    E and G: mean |x − G(E(x))|
    C:       mean over images and classes of σ⁺(−y·f),  y = 1 for the class of the image, −1 for the others

Between the stages a method makes images that no class should claim (:meth:`LatentPlayers.make_unknown`).
Stage B fine-tunes C with K + 1 classes, of which the unknown has the constant logit 0:

    C:       CE of real images over (f, 0) + mean −log P(unknown) of made ones

Images are seen by all players as the network sees them, normalized; G's are in [0, 1] before that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet
from ..errors import UserError
from ..models import Network
from ..models.generators import LatentDecoder, draw_noise, resize
from ..models.latent_players import Critic, LatentEncoder, gradient_penalty
from .auxiliary import descend_together
from .checks import require_two_classes
from .interface import Context, Method, Stage, Views

FINE_TUNE = "fine-tune"
TOGETHER = 64  # images that are made at once


@dataclass(frozen=True)
class LatentPlayersSettings:
    """The players, and the fine-tuning."""

    latent_channels: int = 64
    player_width: int = 64  # channels of the first level of encoder and critic; 8 times that in the generator
    player_depth: int = 3  # convolutions per level
    player_lr: float = 1e-4  # of the players' Adams; the classifier's is lr
    critic_weight: float = 0.01  # w
    penalty_weight: float = 10.0  # p
    made_images: int = 3200  # that no class should claim
    fine_tune_share: float = 1 / 11  # of the steps: 3 of 33 epochs
    fine_tune_lr: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("latent_channels", "player_width", "player_depth", "made_images"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("player_lr", "fine_tune_lr"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("critic_weight", "penalty_weight"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} must not be negative, not {getattr(self, name)}")
        if not 0 < self.fine_tune_share < 1:
            raise UserError(f"fine_tune_share must lie between 0 and 1, not {self.fine_tune_share}")


class LatentPlayers(Method):
    """Encoder, generator, critic and classifier; see the module. Subclasses make the images in between."""

    needs_classifier = True
    view_count = 1
    name: ClassVar[str]  # of the method, for errors
    settings: LatentPlayersSettings
    made: Tensor

    def __init__(
        self, network: Network, settings: LatentPlayersSettings, context: Context | None = None
    ) -> None:
        super().__init__(network, settings, context)
        s, c = settings, self.context
        size = (c.channels, c.image_size)
        decoder = LatentDecoder(s.latent_channels, *size, width=8 * s.player_width)
        self.start = decoder.start
        self.generator = self.auxiliary(decoder, s.player_lr)
        encoder = LatentEncoder(*size, s.latent_channels, s.player_width, s.player_depth)
        self.latent_encoder = self.auxiliary(encoder, s.player_lr)
        self.critic = self.auxiliary(Critic(*size, s.player_width, s.player_depth), s.player_lr)
        self.register_buffer("made", torch.empty(0, dtype=torch.uint8))

    def check_images(self, images: ImageSet) -> None:
        require_two_classes(images, self.name)

    def stages(self) -> tuple[Stage, ...]:
        s = self.settings
        own = {"lr": s.fine_tune_lr, "lr_min": 0.0, "warmup_steps": 0}
        full_size = {"start_size": None}  # the players are built for it
        return (
            Stage("players", 1 - s.fine_tune_share, ("network",), {}, full_size),
            Stage(FINE_TUNE, s.fine_tune_share, ("network",), own, full_size),
        )

    def begin(self, stage: Stage, images: ImageSet, generator: torch.Generator) -> None:
        if stage.name == FINE_TUNE:
            self.eval()
            pixels = self.make_unknown(images, generator)
            self.made = (255 * pixels).round().to(torch.uint8)

    def make_unknown(self, images: ImageSet, generator: torch.Generator) -> Tensor:
        """Return ``made_images`` images (M, C, S, S) in [0, 1] that no class should claim."""
        raise NotImplementedError

    def passes(self, stage: Stage) -> float:
        """Return three, and for fine-tuning as many for made images; the players are not counted."""
        return 6.0 if stage.name == FINE_TUNE else 3.0

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        if views.progress.stage == FINE_TUNE:
            return self.fine_tuning_losses(views, generator)
        played = self.train_players(views.v1, generator)
        ovr = one_versus_rest(self.logits(self.embed(views.v1)), views.labels)
        return {"loss": ovr, **played}

    def train_players(self, x: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Take one step of critic, generator and encoder; return their losses."""
        s, n = self.settings, self.batch_size(x)
        noise = draw_noise(n, (s.latent_channels, self.start, self.start), generator, x)
        share = torch.rand(n, 1, 1, 1, generator=generator).to(x)
        with torch.no_grad():
            from_noise = self.all_rows(self.see(self.decode(self.project(self.own_rows(noise)))))
            real = self.all_rows(x)  # the critic sees whole batches, in every process
        between = share * real + (1 - share) * from_noise
        judged = F.softplus(self.critic(from_noise)).mean()
        judged = judged + s.critic_weight * F.softplus(-self.critic(real)).mean()
        d_loss = judged + s.penalty_weight * gradient_penalty(self.critic, between)
        self.critic.descend(d_loss)

        z = self.encode(x)
        g_loss = -s.critic_weight * self.critic(self.all_rows(self.see(self.decode(z.detach())))).mean()
        self.generator.descend(g_loss)

        errors = (x - self.see(self.decode(z))).abs().mean((1, 2, 3))
        error = self.all_rows(errors).mean()
        descend_together(error, [self.latent_encoder, self.generator])
        return {"critic": d_loss.detach(), "generator": g_loss.detach(), "reconstruction": error.detach()}

    def fine_tuning_losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the losses over K + 1 classes, of real and of made images."""
        rows = torch.randint(len(self.made), (len(views.labels),), generator=generator)
        made = self.see(self.made[self.own_rows(rows).to(self.made.device)].to(views.v1) / 255)
        known = F.cross_entropy(add_unknown(self.logits(self.embed(views.v1))), views.labels)
        unknown = unknown_loss(self.logits(self.embed(made))).mean()
        return {"loss": known + unknown, "known": known, "unknown": unknown}

    # The latent space

    def project(self, z: Tensor) -> Tensor:
        """Return latent maps (N, L, s, s) with a vector of unit length at every position."""
        return F.normalize(z, dim=1)

    def encode(self, x: Tensor) -> Tensor:
        """Return the latent maps of images as the network sees them."""
        return self.project(self.latent_encoder(x))

    def decode(self, z: Tensor) -> Tensor:
        """Return the images in [0, 1] of latent maps."""
        images: Tensor = self.generator(z).sigmoid()
        return images

    def see(self, pixels: Tensor) -> Tensor:
        """Return images in [0, 1] as the network sees them."""
        seen = pixels if self.context.normalizer is None else self.context.normalizer(pixels)
        return seen.contiguous(memory_format=torch.channels_last)

    def draw_images(self, n: int, images: ImageSet, generator: torch.Generator) -> Tensor:
        """Return ``n`` training images as the network sees them, drawn with replacement."""
        rows = torch.randint(len(images), (n,), generator=generator)
        like = next(self.network.parameters())
        return self.see(resize(images.images[rows].to(like) / 255, self.context.image_size))


def one_versus_rest(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over images and classes of softplus(−y·f), y = 1 at the label and −1 elsewhere.

    >>> round(float(one_versus_rest(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))), 4)  # (.1269 + .6931) / 2
    0.41
    """
    y = 2.0 * F.one_hot(labels, logits.shape[1]).to(logits) - 1.0
    return F.softplus(-y * logits).mean()


def add_unknown(logits: Tensor) -> Tensor:
    """Return logits (N, K + 1) with that of the unknown class, 0, after those of the K known ones."""
    return F.pad(logits, (0, 1))


def unknown_loss(logits: Tensor) -> Tensor:
    """Return −log P(unknown) = log(1 + Σ_k exp f_k) of logits (N, K): (N,)."""
    return add_unknown(logits).logsumexp(1)
