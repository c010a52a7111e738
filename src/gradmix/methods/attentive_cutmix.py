"""Attentive CutMix (Walawalkar et al. 2020), a supervised baseline: a trained network says what to cut out.

    x = B with the cells of A that the trained network attends to most, at the same place
    L = λ·CE(f(x), label of A) + (1 − λ)·CE(f(x), label of B),   λ = cells / grid²  (6 / 49)

A is another image of the minibatch. The attention comes from published weights, which have seen ImageNet's
classes; choose ``normalize: imagenet`` (for EfficientNet ``tf``), so that they see images as they were
trained with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attribution import Capture
from ..errors import UserError, choose
from ..mixing import derangement
from ..mixing.attentive import attentive_cells, paste_cells
from ..models import ENCODERS, ModelSettings, Network, build_encoder
from .interface import Context, Method, Views

UNTRAINED = "random"


@dataclass(frozen=True)
class AttentiveCutMixSettings:
    """The network that attends, and how much is cut."""

    attention_init: str = ""  # its weights: a file, hf://owner/name, "pretrained", or "random" to try it out
    attention_encoder: str = "resnet18"
    attention_size: int = 224  # images are enlarged to this for it: 224 gives the 7x7 features of the paper
    attention_grid: int = 7
    attention_cells: int = 6

    def __post_init__(self) -> None:
        choose("attention_encoder", self.attention_encoder, ENCODERS)
        if self.attention_size < 8 or self.attention_grid < 2:
            raise UserError("attention_size must be at least 8 and attention_grid at least 2")
        if not 0 < self.attention_cells < self.attention_grid**2:
            raise UserError(
                f"attention_cells must be from 1 to {self.attention_grid**2 - 1}, not {self.attention_cells}"
            )


class AttentiveCutMix(Method):
    """Cross-entropy on images with cells that a trained network attends to: a baseline; see the module."""

    Settings = AttentiveCutMixSettings
    needs_classifier = True
    detector = "mls"
    view_count = 1
    settings: AttentiveCutMixSettings

    def __init__(
        self, network: Network, settings: AttentiveCutMixSettings, context: Context | None = None
    ) -> None:
        super().__init__(network, settings, context)
        attending = load_attending_network(settings, self.context.generator.initial_seed())
        # In a tuple and so no submodule: it is not trained, and a file has its weights, not the checkpoint.
        self._frozen = (attending.to(next(network.parameters()).device),)

    @property
    def attending(self) -> nn.Module:
        """The network that says where to cut."""
        return self._frozen[0]

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s = self.settings
        partner = derangement(len(views.labels), generator)
        of_a = self.take_rows(views.v1, partner)
        cells = attentive_cells(self._features(of_a), s.attention_grid, s.attention_cells)
        logits = self.logits(self.embed(paste_cells(views.v1, of_a, cells)))
        share = s.attention_cells / s.attention_grid**2
        labels_a = views.labels[partner.to(views.labels.device)]
        ce_a, ce_b = F.cross_entropy(logits, labels_a), F.cross_entropy(logits, views.labels)
        return {"loss": share * ce_a + (1 - share) * ce_b}

    @torch.no_grad()
    def _features(self, images: Tensor) -> Tensor:
        """Return the last feature map (N, K, h, w) of the attending network, for enlarged images."""
        size = (self.settings.attention_size, self.settings.attention_size)
        large = F.interpolate(
            images.float().expand(-1, 3, -1, -1), size, mode="bilinear", align_corners=False
        )
        last = list(self.attending.layer_names)[-1]  # type: ignore[arg-type]
        with Capture(self.attending, [last]) as capture:
            self.attending(large.contiguous(memory_format=torch.channels_last))
            return capture.activations()[0]


def load_attending_network(settings: AttentiveCutMixSettings, seed: int) -> nn.Module:
    """Return the frozen network whose features say where to cut."""
    if not settings.attention_init:
        raise UserError(
            "attentive-cutmix needs a trained network: --attention-init FILE with ResNet weights, or "
            "hf://timm/resnet18.tv_in1k; or --attention-init pretrained "
            "--attention-encoder efficientnet_lite0"
        )
    init = "" if settings.attention_init == UNTRAINED else settings.attention_init
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ModelSettings(encoder=settings.attention_encoder, init=init)
        encoder = build_encoder(model, settings.attention_size, 3)
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return encoder.eval().requires_grad_(False)
