"""G-OpenMax as its paper has it (Ge et al. 2017): a class-conditional GAN draws images between classes.

Stage 1 trains a generator G and a discriminator D, both of which are told a class code c, and the classifier
of the K known classes; x real images of classes y, n noise, c drawn codes (one-hot):

    D:  BCE(D(x, y), 1) + BCE(D(G(n, c), c), 0)
    G:  BCE(D(G(n, c), c), 1)
    C:  CE(f, y)

Then codes that mix classes are drawn, and G(n, c) is kept if the classifier's answer is not the largest class
of its code. Stage 2 trains the network with K + 1 outputs, (f, u), u the logit of the unknown; every class,
the unknown one too, weighs the same:

    C:  ( K · mean CE((f, u), y) of real images + mean CE((f, u), K) of made ones ) / (K + 1)

The score is OpenMax over the K + 1 outputs. The numbers that tables print are of :mod:`.g_openmax`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet
from ..errors import UserError
from ..models import DummiesHead, ModelSettings, Network, NetworkSpec
from ..models.generators import ConditionalDiscriminator, NoiseGenerator, draw_noise
from ..progress import progress
from .arpl_cs import MIN_WIDTH, bce
from .checks import require_two_classes
from .g_openmax import LeastConfident
from .interface import Context, Method, Stage, Views
from .together import embed_together

UNKNOWN = "unknown"  # the second stage
TOGETHER = 64  # images that are made at once


@dataclass(frozen=True)
class GOpenMaxGANSettings:
    """The players, the mixed codes, and the second stage."""

    noise_dim: int = 100
    gan_width: int = 512  # channels of the generator's first map; halved with every doubling of the side
    gan_lr: float = 2e-4  # of the generator's and of the discriminator's Adam
    mixed_classes: int = 2  # that a mixed code is made of; all, if there are fewer
    made_images: int = 3200  # of the unknown class
    mix_tries: int = 10  # images with mixed codes per image that is wanted, at most
    unknown_share: float = 0.3  # of the steps, for the second stage
    unknown_lr: float = 1e-4  # of the second stage

    def __post_init__(self) -> None:
        for name, least in (("noise_dim", 1), ("mixed_classes", 2), ("made_images", 1), ("mix_tries", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.gan_width < MIN_WIDTH or self.gan_width & (self.gan_width - 1):
            raise UserError(f"gan_width must be a power of 2 from {MIN_WIDTH} on, not {self.gan_width}")
        for name in ("gan_lr", "unknown_lr"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be positive, not {getattr(self, name)}")
        if not 0 < self.unknown_share < 1:
            raise UserError(f"unknown_share must lie between 0 and 1, not {self.unknown_share}")


class GOpenMaxGAN(Method):
    """A classifier with an output for images between classes, which a conditional GAN draws; see above."""

    Settings = GOpenMaxGANSettings
    view_count = 1
    detector = "g-openmax"
    settings: GOpenMaxGANSettings
    made: Tensor

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network with one output for the unknown beside those of the classes."""
        head = {"kind": DummiesHead.kind, "classes": num_classes, "dummies": 1}
        return replace(plain, head={**head, "bias": model.classifier_bias})

    def __init__(
        self, network: Network, settings: GOpenMaxGANSettings, context: Context | None = None
    ) -> None:
        super().__init__(network, settings, context)
        s, c = settings, self.context
        self.classes = network.num_classes
        generator = NoiseGenerator(s.noise_dim + self.classes, c.channels, c.image_size, s.gan_width)
        self.generator = self.auxiliary(generator, s.gan_lr)
        judge = ConditionalDiscriminator(c.channels, self.classes, c.image_size, s.gan_width)
        self.discriminator = self.auxiliary(judge, s.gan_lr)
        self.register_buffer("made", torch.empty(0, dtype=torch.uint8))

    def check_images(self, images: ImageSet) -> None:
        require_two_classes(images, "g-openmax-gan")

    def stages(self) -> tuple[Stage, ...]:
        s = self.settings
        own = {"lr": s.unknown_lr, "lr_min": 0.0, "warmup_steps": 0}
        known = ("network.encoder", "network.projection", "network.classifier.known")
        full_size = {"start_size": None}  # the players are built for it
        return (
            Stage("players", 1 - s.unknown_share, known, {}, full_size),
            Stage(UNKNOWN, s.unknown_share, ("network",), own, full_size),
        )

    def passes(self, stage: Stage) -> float:
        """Return three, and in the second stage as many for made images; the players are not counted."""
        return 6.0 if stage.name == UNKNOWN else 3.0

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        if views.progress.stage == UNKNOWN:
            return self.unknown_losses(views, generator)
        d_loss, g_loss = self.train_players(views, generator)
        ce = F.cross_entropy(self.logits(self.embed(views.v1)), views.labels)
        return {"loss": ce, "discriminator": d_loss, "generator": g_loss}

    def train_players(self, views: Views, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Take one step of the discriminator and one of the generator; return their losses."""
        x, n = views.v1, len(views.labels)
        drawn = torch.randint(self.classes, (n,), generator=generator)
        noise = draw_noise(n, (self.settings.noise_dim,), generator, x)
        codes, own = (
            F.one_hot(self.own_rows(labels).to(x.device), self.classes).to(x)
            for labels in (drawn, views.labels)
        )
        made = self.see(self.draw(self.own_rows(noise), codes))
        on_real = self.all_rows(self.discriminator(x, own))
        on_made = self.all_rows(self.discriminator(made.detach(), codes))
        d_loss = bce(on_real, 1.0) + bce(on_made, 0.0)
        self.discriminator.descend(d_loss)
        g_loss = bce(self.all_rows(self.discriminator(made, codes)), 1.0)
        self.generator.descend(g_loss)
        return d_loss.detach(), g_loss.detach()

    def begin(self, stage: Stage, images: ImageSet, generator: torch.Generator) -> None:
        if stage.name == UNKNOWN:
            self.eval()
            self.made = (255 * self.make_unknown(generator)).round().to(torch.uint8)

    @torch.no_grad()
    def make_unknown(self, generator: torch.Generator) -> Tensor:
        """Return ``made_images`` images (M, C, S, S) in [0, 1] of mixed codes that the classifier misses."""
        s = self.settings
        pool = LeastConfident(s.made_images)
        with progress("images between classes", s.made_images) as advance:
            for _ in range(0, s.made_images * s.mix_tries, TOGETHER):
                before = min(pool.kept, s.made_images)
                pool.add(*self.mix(generator))
                advance(min(pool.kept, s.made_images) - before)
                if pool.kept >= s.made_images:
                    break
        return pool.images

    def mix(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return images in [0, 1] of mixed codes, how sure the classifier is of the largest class of the
        code (N,), and whether its answer is another one (N,)."""
        like = next(self.network.parameters())
        noise = draw_noise(TOGETHER, (self.settings.noise_dim,), generator, like)
        codes = mix_codes(TOGETHER, self.classes, self.settings.mixed_classes, generator).to(like)
        pixels = self.draw(noise, codes)
        p = self.logits(self.network(self.see(pixels))).softmax(1)
        largest = codes.argmax(1)
        return pixels, p.gather(1, largest[:, None])[:, 0], p.argmax(1) != largest

    def unknown_losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the losses over K + 1 classes, of real and of made images, seen in one pass."""
        head = self.network.classifier
        assert isinstance(head, DummiesHead)
        rows = torch.randint(len(self.made), (len(views.labels),), generator=generator)
        made = self.see(self.made[self.own_rows(rows).to(self.made.device)].to(views.v1) / 255)
        real, fake = (
            torch.cat([head(z), head.dummies(z)], dim=1) for z in embed_together(self, [views.v1, made])
        )
        known = F.cross_entropy(real, views.labels)
        unknown = F.cross_entropy(fake, torch.full_like(views.labels, self.classes))
        loss = (self.classes * known + unknown) / (self.classes + 1)
        return {"loss": loss, "known": known, "unknown": unknown}

    def draw(self, noise: Tensor, codes: Tensor) -> Tensor:
        """Return the images in [0, 1] of noise (N, noise_dim) and class codes (N, K)."""
        images: Tensor = self.generator(torch.cat([noise, codes], dim=1))
        return images

    def see(self, pixels: Tensor) -> Tensor:
        """Return images in [0, 1] as the network sees them."""
        seen = pixels if self.context.normalizer is None else self.context.normalizer(pixels)
        return seen.contiguous(memory_format=torch.channels_last)


def mix_codes(n: int, classes: int, mixed: int, generator: torch.Generator) -> Tensor:
    """Return codes (n, K), each uniform over the mixtures of ``mixed`` classes drawn for it; rows sum to 1.

    Shares of exponential variables are uniform on the simplex.

    >>> code = mix_codes(1, 5, 2, torch.Generator())[0]
    >>> int((code > 0).sum()), round(float(code.sum()), 5)
    (2, 1.0)
    """
    order = torch.rand(n, classes, generator=generator).argsort(1)
    share = torch.empty(n, classes).exponential_(generator=generator)
    share = share.scatter(1, order[:, mixed:], 0.0)
    return share / share.sum(1, keepdim=True)
