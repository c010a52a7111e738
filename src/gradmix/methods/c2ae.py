"""C2AE, the class-conditioned auto-encoder (Oza & Patel 2019): can an image be drawn as of a known class?

Stage 1 is cross-entropy. In stage 2 encoder and classifier stand still, and a decoder learns to draw x from
its features z under the right class m, and something else, an image x′ of class n, under a wrong one:

    L = α · mean |x − G(z, l_m)| + (1 − α) · mean |x′ − G(z, l_n)|

An unknown image is badly drawn under every class: its score is −min_k r_k, and the label the classifier's.
The decoder is a part of the model (:class:`ConditionalDecoder`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet
from ..detection import Outputs
from ..detection.pareto import pareto_threshold, require_tail
from ..errors import UserError, choose
from ..models import ENCODERS, ModelSettings, Network, NetworkSpec, require_stages
from ..models.conditional_decoder import ConditionalDecoder, reconstruction_errors
from ..models.encoders import resolve_stem
from .checks import require_two_classes
from .interface import Context, Method, Stage, Views

DECODE = "decode"
THRESHOLDS = ("conformal", "pareto")
MIN_WIDTH = 8


@dataclass(frozen=True)
class C2AESettings:
    """The two stages, and the decoder."""

    match_weight: float = 0.9  # α, of the image under its own class; the rest is for another image
    decoder_share: float = 0.5  # of the steps, for the second stage
    decoder_lr: float = 3e-4  # of its Adam
    decoder_width: int = 512  # channels of the decoder's first map
    label_smoothing: float = 0.0  # in the first stage
    error_threshold: str = "conformal"  # or pareto: the paper's, between errors of right and of wrong classes
    unknown_chance: float = 0.5  # p_u, that an image is of no known class, for the pareto threshold

    def __post_init__(self) -> None:
        if not 0 <= self.match_weight <= 1:
            raise UserError(f"match_weight must lie in [0, 1], not {self.match_weight}")
        if not 0 < self.decoder_share < 1:
            raise UserError(f"decoder_share must lie between 0 and 1, not {self.decoder_share}")
        if not self.decoder_lr > 0:
            raise UserError(f"decoder_lr must be positive, not {self.decoder_lr}")
        if self.decoder_width < MIN_WIDTH:
            raise UserError(f"decoder_width must be at least {MIN_WIDTH}, not {self.decoder_width}")
        choose("error_threshold", self.error_threshold, THRESHOLDS)
        if not 0 < self.unknown_chance < 1:
            raise UserError(f"unknown_chance must lie between 0 and 1, not {self.unknown_chance}")
        if not 0 <= self.label_smoothing < 1:
            raise UserError(f"label_smoothing must lie in [0, 1), not {self.label_smoothing}")


class C2AE(Method):
    """Classification, then a decoder under the condition of a class; see the module."""

    Settings = C2AESettings
    needs_classifier = True
    view_count = 1
    detector = "reconstruction"
    settings: C2AESettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network with a linear head, and the decoder as its probe."""
        spec = super().describe_network(plain, settings, model, num_classes)
        with torch.device("meta"):  # to know its last map, without memory
            encoder = ENCODERS[plain.encoder](plain.channels, resolve_stem(plain.stem, plain.image_size))
        latent = require_stages(encoder, "c2ae").dim
        kind = ConditionalDecoder.kind
        return replace(spec, probe={"kind": kind, "latent": latent, "width": settings.decoder_width})

    def __init__(self, network: Network, settings: C2AESettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        assert isinstance(network.probe, ConditionalDecoder)
        self._decoder = (network.probe,)  # no submodule of its own: it is the network's

    def check_images(self, images: ImageSet) -> None:
        require_two_classes(images, "c2ae")
        if self.settings.error_threshold == "pareto":
            require_tail(len(images))

    def stages(self) -> tuple[Stage, ...]:
        s = self.settings
        own = {"optimizer": "adam", "lr": s.decoder_lr, "lr_min": 0.0, "weight_decay": 0.0, "warmup_steps": 0}
        classify = ("network.encoder", "network.projection", "network.classifier")
        return (
            Stage("classify", 1 - s.decoder_share, classify),
            Stage(DECODE, s.decoder_share, ("network.probe",), own, {"start_size": None}),
        )

    def passes(self, stage: Stage) -> float:
        """Return three, or one where only the decoder is trained."""
        return 1.0 if stage.name == DECODE else 3.0

    @classmethod
    def find_threshold(cls, settings: C2AESettings, train: Outputs) -> float | None:
        """Return −τ* of the errors under the right class and under all others, if the recipe says so."""
        if settings.error_threshold != "pareto":
            return None
        errors = train.extra["errors"].double()
        right = F.one_hot(train.labels, errors.shape[1]).bool()
        return -pareto_threshold(errors[right], errors[~right], settings.unknown_chance)

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        if views.progress.stage == DECODE:
            return self.decoder_losses(views, generator)
        logits = self.logits(self.embed(views.v1))
        smoothing = self.settings.label_smoothing
        return {"loss": F.cross_entropy(logits, views.labels, label_smoothing=smoothing)}

    def decoder_losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the errors under the right class, and of another image under its class."""
        decoder, x = self._decoder[0], views.v1
        other = draw_other_class(views.labels.cpu(), generator)
        other_labels = views.labels[other.to(x.device)]
        with torch.no_grad():
            maps = decoder.encode(self.network, x)
        match = reconstruction_errors(x, decoder.draw(maps, self.own_rows(views.labels)))
        target = self.take_rows(x, other)
        nonmatch = reconstruction_errors(target, decoder.draw(maps, self.own_rows(other_labels)))
        found = other_labels != views.labels  # not all, where a batch is of one class
        match, nonmatch = self.all_rows(match).mean(), self.all_rows(nonmatch)[found].sum() / len(found)
        weight = self.settings.match_weight
        return {"loss": weight * match + (1 - weight) * nonmatch, "match": match, "nonmatch": nonmatch}


def draw_other_class(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Return for each of N labels the row of one of another class, drawn uniformly among them: (N,).

    Where a batch has no other class, any row.

    >>> draw_other_class(torch.tensor([0, 0, 1]), torch.Generator()).tolist()[:2]
    [2, 2]
    """
    chance = torch.rand(len(labels), len(labels), generator=generator)
    return chance.masked_fill(labels[:, None] == labels, -1.0).argmax(1)
