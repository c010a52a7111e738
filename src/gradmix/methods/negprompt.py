"""NegPrompt (Li et al. 2024): beside the prompt of the classes, prompts for what is *not* of a class.

Two stages, towers frozen, contexts shared by the classes. First the positive context by cross-entropy. Then,
with it frozen, M negative contexts, of texts n_kj beside the positive t_k:

    L = I + a · (−mean_kj (1 − cos(t_k, n_kj))) + b · (−mean_k (1 − ‖mean_j n_kj‖))

The second term parts the negative texts from the positive ones, the third from each other. Of I there are
two readings. The paper says that known images and negative texts are to be separated; here (``paper``) that
is the cross-entropy of the image's class against all K·(1+M) texts. The released code takes the multi-label
soft margin loss with ones at the label's positive *and* negatives (``released``), which draws an image
towards the negatives of its own class. The score is that of detection/mcm.py: negprompt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError, choose
from ..models import ModelSettings, NetworkSpec
from ..models.clip import TextHead
from ..models.clip.weights import Weights
from .clip_prompts import CLIPMethod, CLIPSettings, LearnedPrompts, draw_contexts, embed_words
from .interface import Stage, Views

SEPARATIONS = ("paper", "released")
_POSITIVE, _NEGATIVE = "positive", "negative"


@dataclass(frozen=True)
class NegPromptSettings(CLIPSettings):
    """The prompts and the weights of the losses."""

    negatives: int = 2  # M, negative contexts
    context_words: str = "a photo of a"  # where contexts begin; empty: drawn
    context_tokens: int = 16  # of a drawn context
    separation: str = "paper"  # paper: images away from negatives; released: towards those of their class
    apart_weight: float = 0.1  # a: negative from positive texts
    spread_weight: float = 0.05  # b: negative texts from each other
    negative_share: float = 0.5  # of the steps: the second stage

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("separation", self.separation, SEPARATIONS)
        for name in ("negatives", "context_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("apart_weight", "spread_weight"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} must not be negative, not {getattr(self, name)}")
        if not 0 < self.negative_share < 1:
            raise UserError(f"negative_share must lie between 0 and 1, not {self.negative_share}")


class NegPrompt(CLIPMethod):
    """Positive prompts, then negative ones; see the module."""

    Settings = NegPromptSettings
    detector = "negprompt"
    settings: NegPromptSettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network of all CLIP methods with negative texts in its head."""
        spec = super().describe_network(plain, settings, model, num_classes)
        head = {"kind": TextHead.kind, "classes": num_classes, "negatives": settings.negatives}
        return replace(spec, head=head)

    def prepare(self, weights: Weights) -> None:
        s, tower = self.settings, self.text_tower
        positive = negative = None
        if s.context_words:
            positive = embed_words(tower, s.context_words)
            # Not all at the same words, as released: equal contexts get equal gradients, and stay equal.
            drawn = draw_contexts(s.negatives, positive.shape[1], tower.width, self.context.generator)
            negative = positive + drawn.to(positive)
        else:
            positive = draw_contexts(1, s.context_tokens, tower.width, self.context.generator)
            negative = draw_contexts(s.negatives, s.context_tokens, tower.width, self.context.generator)
        self.positive = LearnedPrompts(tower, self.names, positive, stop="")
        self.negative = LearnedPrompts(tower, self.names, negative, stop="")
        self.update_network()

    @torch.no_grad()
    def update_network(self) -> None:
        """Write the text features of the learned prompts into the head."""
        self.head.text.copy_(self.positive(self.text_tower))
        self.head.negative_text.copy_(self.negative(self.text_tower))

    def stages(self) -> tuple[Stage, ...]:
        share = self.settings.negative_share
        return (
            Stage(_POSITIVE, 1 - share, trains=("positive",)),
            Stage(_NEGATIVE, share, trains=("negative",)),
        )

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s, scale = self.settings, self.head.scale
        with torch.no_grad():
            z = F.normalize(self.embed(views.v1), dim=1)
        positive = self.positive(self.text_tower)
        if views.progress.stage != _NEGATIVE:
            return {"loss": F.cross_entropy(scale * z @ positive.T, views.labels)}
        negative = self.negative(self.text_tower)
        image = image_loss(scale * z @ positive.T, scale * z @ negative.T, views.labels, s.separation)
        negative = negative.unflatten(0, (-1, s.negatives))
        apart, spread = apart_loss(positive, negative), spread_loss(negative)
        loss = image + s.apart_weight * apart + s.spread_weight * spread
        return {"loss": loss, "image": image, "apart": apart, "spread": spread}


def image_loss(positive: Tensor, negative: Tensor, labels: Tensor, separation: str) -> Tensor:
    """Return I of positive logits (N, K) and negative ones (N, K·M), as ``paper`` or ``released``."""
    logits = torch.cat([positive, negative], dim=1)
    if separation == "paper":
        return F.cross_entropy(logits, labels)
    own = F.one_hot(labels, positive.shape[1]).to(logits)
    per_class = negative.shape[1] // positive.shape[1]
    target = torch.cat([own, own.repeat_interleave(per_class, dim=1)], dim=1)
    loss: Tensor = F.multilabel_soft_margin_loss(logits, target)
    return loss


def apart_loss(positive: Tensor, negative: Tensor) -> Tensor:
    """Return −mean (1 − cos) of unit texts (K, d) and their negatives (K, M, d)."""
    return -(1 - (positive[:, None] * negative).sum(2)).mean()


def spread_loss(negative: Tensor) -> Tensor:
    """Return −mean_k (1 − ‖mean_j n_kj‖) of unit negatives (K, M, d): least where they cancel out."""
    loss: Tensor = -(1 - torch.linalg.vector_norm(negative.mean(1), dim=1)).mean()
    return loss
