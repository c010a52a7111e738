"""G-OpenMax as Neal et al. (2018) measured it: images between two training images stand for the unknown.

The players and the fine-tuning are those of OSRCI (:mod:`.latent_players`). Between them

    z = θ·E(x) + (1 − θ)·E(x′),   θ ~ U(0, 1) per image, x and x′ any two training images

and G(z) is kept if the classifier is not sure of it, max softmax(f) < 0.5. With a good autoencoder that is
seldom so: after ``mix_tries`` times as many images as are wanted, the least confident of those that were
rejected fill the rest. With two classes it never is, and a limit above ½ must be given.

The paper's own version (Ge et al. 2017), with a class-conditional GAN and K + 1 outputs, is
:mod:`.g_openmax_gan`; the numbers that tables print are of this one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import ImageSet
from ..errors import UserError
from ..progress import progress
from .latent_players import TOGETHER, LatentPlayers, LatentPlayersSettings


@dataclass(frozen=True)
class GOpenMaxSettings(LatentPlayersSettings):
    """The players, and which mixed images are kept."""

    confidence_limit: float = 0.5  # mixed images of which the classifier is surer than this are rejected
    mix_tries: int = 10  # mixed images per image that is wanted, at most

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.confidence_limit <= 1:
            raise UserError(f"confidence_limit must lie in (0, 1], not {self.confidence_limit}")
        if self.mix_tries < 1:
            raise UserError(f"mix_tries must be at least 1, not {self.mix_tries}")


class GOpenMax(LatentPlayers):
    """A classifier that has seen images between two others; see the module."""

    Settings = GOpenMaxSettings
    detector = "openmax"
    name = "g-openmax"
    settings: GOpenMaxSettings

    def check_images(self, images: ImageSet) -> None:
        super().check_images(images)
        classes, limit = len(images.class_names), self.settings.confidence_limit
        if limit * classes <= 1:
            raise UserError(
                f"method {self.name} keeps mixed images of which the classifier is less sure than "
                f"confidence_limit {limit:g}, and of {classes} classes one always has {1 / classes:.3g} or "
                f"more; give a higher one: --confidence-limit {(1 + 1 / classes) / 2:.2g}"
            )

    @torch.no_grad()
    def make_unknown(self, images: ImageSet, generator: torch.Generator) -> Tensor:
        s = self.settings
        pool = LeastConfident(s.made_images, s.confidence_limit)
        with progress("images between classes", s.made_images) as advance:
            for _ in range(0, s.made_images * s.mix_tries, TOGETHER):
                before = pool.kept
                pool.add(*self.mix(images, generator))
                advance(min(pool.kept, s.made_images) - min(before, s.made_images))
                if pool.kept >= s.made_images:
                    break
        return pool.images

    def mix(self, images: ImageSet, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images in [0, 1] between pairs of training images, and the classifier's confidence (N,)."""
        theta = torch.rand(TOGETHER, 1, 1, 1, generator=generator)
        ends = self.encode(self.draw_images(2 * TOGETHER, images, generator))
        theta = theta.to(ends)
        mixed = self.decode(theta * ends[:TOGETHER] + (1 - theta) * ends[TOGETHER:])  # not projected again
        return mixed, self.logits(self.network(self.see(mixed))).softmax(1).amax(1)


class LeastConfident:
    """Collects ``count`` images: those that are kept, in order of arrival; then the least confident.

    Kept is whatever lies below ``limit``, unless :meth:`add` is told.
    """

    def __init__(self, count: int, limit: float = 0.0) -> None:
        self.count, self.limit, self.kept = count, limit, 0
        self._images = torch.empty(0)
        self._rank = torch.empty(0)  # of each image: 0 if it is kept, else its confidence

    def add(self, images: Tensor, confidence: Tensor, kept: Tensor | None = None) -> None:
        """Take those of images (N, …) that are among the best so far; ``confidence``, ``kept``: (N,)."""
        kept = confidence < self.limit if kept is None else kept
        rank = confidence.masked_fill(kept, 0.0)
        self.kept += int(kept.sum())
        rank = torch.cat([self._rank.to(rank), rank])
        images = torch.cat([self._images, images]) if len(self._images) else images
        best = rank.sort(stable=True).indices[: self.count]
        self._rank, self._images = rank[best], images[best]

    @property
    def images(self) -> Tensor:
        """The images so far, at most ``count``."""
        return self._images
