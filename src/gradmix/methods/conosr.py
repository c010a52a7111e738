"""ConOSR (Xu et al. 2023): contrastive learning with soft labels, then a classifier on the frozen encoder.

Stage "contrast": two views of every image, and a mix of each with that of another image, go through the
encoder and a projection u = W z / σ(W) of spectral norm 1, which is thrown away afterwards.

    t = label smoothed by ε,   x̃ = μ·x + (1 − μ)·x_π,   t̃ = μ·t + (1 − μ)·t_π,   one μ and π per batch
    L = soft SupCon of the 4N embeddings, weighted by the cosines of their labels (losses/soft_supcon.py)

Stage "classify": the encoder is frozen, and an MLP with spectral norms is trained by smoothed cross-entropy.
Smoothing leaves 1 − ε to the true class and ε/(K − 1) to each other one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from ..data import ImageSet
from ..errors import UserError
from ..losses import soft_supcon
from ..losses.smoothing import smooth_targets
from ..mixing import draw_mix
from ..models import MLPHead, ModelSettings, Network, NetworkSpec
from .checks import require_two_classes
from .interface import Context, Method, Stage, Views
from .together import embed_together

_SECOND = "classify"


@dataclass(frozen=True)
class ConOSRSettings:
    """Both stages."""

    contrast_temperature: float = 0.1  # τ
    contrast_smoothing: float = 0.2  # ε of the soft labels
    contrast_dim: int = 128  # of the projection that the contrast is in
    mix_alpha: float = 1.0  # μ ~ Beta(α, α), one per batch
    head_hidden: int = 128  # of the classifier
    head_smoothing: float = 0.1  # ε of its cross-entropy
    head_lr: float = 1e-4  # of its Adam, a cosine to 0
    head_share: float = 0.1  # of the steps, for the second stage

    def __post_init__(self) -> None:
        for name in ("contrast_temperature", "mix_alpha", "head_lr"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("contrast_smoothing", "head_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} must lie in [0, 1), not {getattr(self, name)}")
        for name in ("contrast_dim", "head_hidden"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.head_share < 1:
            raise UserError(f"head_share must lie between 0 and 1, not {self.head_share}")


class ConOSR(Method):
    """Soft supervised contrast, then a classifier on the frozen encoder; see the module."""

    Settings = ConOSRSettings
    view_count = 2
    detector = "mls"
    settings: ConOSRSettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network with an MLP as its head, whose layers have spectral norm 1."""
        head = {"kind": MLPHead.kind, "classes": num_classes, "hidden": settings.head_hidden}
        return replace(plain, head={**head, "spectral": True})

    def __init__(self, network: Network, settings: ConOSRSettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        with torch.random.fork_rng(devices=[]):  # neither takes a generator
            torch.manual_seed(self.context.generator.initial_seed())
            self.contrast = spectral_norm(nn.Linear(network.feature_dim, settings.contrast_dim))

    def check_images(self, images: ImageSet) -> None:
        require_two_classes(images, "conosr")

    def stages(self) -> tuple[Stage, ...]:
        s = self.settings
        second = {"optimizer": "adam", "lr": s.head_lr, "lr_min": 0.0, "schedule": "cosine"}
        return (
            Stage("contrast", 1 - s.head_share, ("network.encoder", "network.projection", "contrast")),
            Stage(
                _SECOND,
                s.head_share,
                ("network.classifier",),
                {**second, "warmup_steps": 0, "weight_decay": 0.0},
            ),
        )

    def passes(self, stage: Stage) -> float:
        """Return three for each of four views; for a head on the frozen encoder, one."""
        return 1.0 if stage.name == _SECOND else 12.0

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s, classes = self.settings, self.context.num_classes
        if views.progress.stage == _SECOND:
            targets = smooth_targets(views.labels, classes, s.head_smoothing, "others")
            logits = self.logits(self.embed(views.v1))
            return {"loss": F.cross_entropy(logits, targets.to(logits))}
        order = torch.randperm(len(views.labels), generator=generator)
        mu = draw_mix(s.mix_alpha, generator)
        mixes = [mu * view + (1 - mu) * self.take_rows(view, order) for view in (views.v1, views.v2)]
        z = torch.cat(embed_together(self, [views.v1, views.v2, *mixes]))  # (4N, d)
        clean = smooth_targets(views.labels, classes, s.contrast_smoothing, "others")
        mixed = mu * clean + (1 - mu) * clean[order.to(clean.device)]
        targets = torch.cat([clean, clean, mixed, mixed])
        return {"loss": soft_supcon(F.normalize(self.contrast(z), dim=1), targets, s.contrast_temperature)}
