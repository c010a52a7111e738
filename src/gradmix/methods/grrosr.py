"""Generative-discriminative features (Perera et al. 2020): classify an image beside its reconstruction.

    stage 1, the autoencoder:   L = mean |x − x̂|  (or squared)
    stage 2, all but it:        L = CE(f(x, x̂), y) + w · CE(r(turned by q), q)

q is one of four quarter turns, drawn per image, and r a second head on the same features. ``turned: pair``
turns image and reconstruction together. Then r need not understand the image: what the autoencoder's
convolutions leave in x̂ has a direction of its own, and turns with it. ``turned: image`` turns the image, and
reconstructs it afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import UserError, choose
from ..models import ModelSettings, Network, NetworkSpec, Reconstruct
from ..models.reconstruct import WIDTHS
from .interface import Context, Embed, Method, Stage, Views

ERRORS = ("absolute", "squared")
TURNED = ("image", "pair")
AUTOENCODER = "autoencoder"  # the name of the first stage
TURNS = 4


@dataclass(frozen=True)
class GRROSRSettings:
    """The autoencoder, and the weight of the turns."""

    autoencoder_widths: tuple[int, ...] = WIDTHS  # one convolution of stride 2 each, and one back
    autoencoder_share: float = 0.2  # of the steps, at the beginning
    autoencoder_lr: float = 1e-3  # of Adam, which trains it
    reconstruction: str = "absolute"  # or squared: the error that it minimizes
    turned: str = "image"  # image: and then reconstructed; pair: together with its reconstruction
    rotation_weight: float = 1.0  # w, of telling by how many quarter turns an image was turned

    def __post_init__(self) -> None:
        choose("reconstruction", self.reconstruction, ERRORS)
        choose("turned", self.turned, TURNED)
        if not self.autoencoder_widths or min(self.autoencoder_widths) < 1:
            raise UserError(f"autoencoder_widths must be positive, not {self.autoencoder_widths}")
        if not 0 < self.autoencoder_share < 1:
            raise UserError(f"autoencoder_share must lie between 0 and 1, not {self.autoencoder_share}")
        if not self.autoencoder_lr > 0:
            raise UserError(f"autoencoder_lr must be positive, not {self.autoencoder_lr}")
        if not self.rotation_weight >= 0:
            raise UserError(f"rotation_weight must not be negative, not {self.rotation_weight}")


class GRROSR(Method):
    """An autoencoder, then CE of images beside their reconstructions, and of their turns; see the module."""

    Settings = GRROSRSettings
    needs_classifier = True
    view_count = 1
    detector = "mls"
    settings: GRROSRSettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network with a linear head, and an autoencoder before its encoder."""
        spec = super().describe_network(plain, settings, model, num_classes)
        return replace(spec, body={"kind": "reconstruct", "widths": list(settings.autoencoder_widths)})

    def __init__(self, network: Network, settings: GRROSRSettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        assert isinstance(network.encoder, Reconstruct)
        self.rotation = nn.Linear(network.feature_dim, TURNS)
        bound = network.feature_dim**-0.5
        for parameter in self.rotation.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=self.context.generator)
        self.reconstruct: Embed = _unbound(self.context.call(network.encoder.autoencoder))
        self.embed_pair: Embed = self.embedder(_FromPair(network))

    def stages(self) -> tuple[Stage, ...]:
        """Return the autoencoder's stage, on views of full size, and that of all the rest."""
        s = self.settings
        adam = {"optimizer": "adam", "lr": s.autoencoder_lr, "weight_decay": 0.0, "schedule": "cosine"}
        parts = ("network.encoder.encoder", "network.projection", "network.classifier", "rotation")
        first = Stage(
            AUTOENCODER,
            s.autoencoder_share,
            ("network.encoder.autoencoder",),
            {**adam, "lr_min": min(5e-5, s.autoencoder_lr)},
            {"start_size": None},
        )
        return (first, Stage("classify", 1 - s.autoencoder_share, parts))

    def passes(self, stage: Stage) -> float:
        """Return three for the image and three for its turn; the autoencoder trains without the encoder."""
        return 0.0 if stage.name == AUTOENCODER else 6.0

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s, x = self.settings, views.v1
        made = self.reconstruct(x)
        if views.progress.stage == AUTOENCODER:
            difference = x - made
            size = difference.abs() if s.reconstruction == "absolute" else difference.square()
            error = self.all_rows(size.mean((1, 2, 3))).mean()
            return {"loss": error, "reconstruction": error}
        pair = torch.cat([x, made], dim=1)
        ce = F.cross_entropy(self.logits(self.embed_pair(pair)), views.labels)
        quarters = torch.randint(TURNS, (self.batch_size(x),), generator=generator)
        own = self.own_rows(quarters).to(x.device)
        if s.turned == "image":
            turned = turn(x, own)
            turned = torch.cat([turned, self.reconstruct(turned)], dim=1)
        else:
            turned = turn(pair, own)
        rotation = F.cross_entropy(self.rotation(self.embed_pair(turned)), quarters.to(x.device))
        return {"loss": ce + s.rotation_weight * rotation, "ce": ce, "rotation": rotation}


def turn(images: Tensor, quarters: Tensor) -> Tensor:
    """Return square images (N, C, S, S), each turned by its own number of quarter turns (N,).

    >>> turn(torch.tensor([[[[1, 2], [3, 4]]]]), torch.tensor([1])).tolist()
    [[[[2, 4], [1, 3]]]]
    """
    turned = images.clone()
    for q in range(1, TURNS):
        rows = quarters == q
        turned[rows] = images[rows].rot90(q, (2, 3))
    return turned


class _FromPair(nn.Module):
    """The network from image and reconstruction, which are made once, to z."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        assert isinstance(network.encoder, Reconstruct)
        self.encoder, self.projection = network.encoder.encoder, network.projection

    def forward(self, pair: Tensor) -> Tensor:
        z: Tensor = self.projection(self.encoder(pair))
        return z


def _unbound(call: Embed) -> Embed:
    """Return a function: a module assigned to the method would be registered a second time."""
    return call.__call__ if isinstance(call, nn.Module) else call
