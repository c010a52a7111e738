"""LoCoOp (Miyai et al. 2023): learn CLIP's prompt from few images, and let the background be of no class.

    s = cos(z, t_k),  s_p the same for patch p,  scale = 100
    L = CE(scale · s, y) − w · mean over background patches of H(softmax(scale · s_p))

Towers are frozen; the context of the prompt is learned, shared by all classes. A patch is background where
the label is not among its k likeliest classes. Features of patches leave the attention of the last block
out (see models/clip/vision.py). As released, H takes log(p + 1e-5).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import UserError
from ..models import Network
from ..models.clip import VisionTower
from ..models.clip.weights import Weights
from .clip_prompts import CLIPMethod, CLIPSettings, LearnedPrompts, draw_contexts
from .interface import Context, Views

_LOG_OFFSET = 1e-5


@dataclass(frozen=True)
class LoCoOpSettings(CLIPSettings):
    """The prompt, and what counts as background."""

    context_tokens: int = 16  # vectors before the class name
    background_weight: float = 0.25  # w
    background_top: float = 0.2  # k, as a share of the classes: 200 of ImageNet's 1,000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context_tokens < 1:
            raise UserError(f"context_tokens must be at least 1, not {self.context_tokens}")
        if not self.background_weight >= 0:
            raise UserError(f"background_weight must not be negative, not {self.background_weight}")
        if not 0 < self.background_top < 1:
            raise UserError(f"background_top must lie between 0 and 1, not {self.background_top}")


class LoCoOp(CLIPMethod):
    """Cross-entropy on the image, and entropy on its background; see the module."""

    Settings = LoCoOpSettings
    detector = "gl-mcm"
    sees_patches = True
    settings: LoCoOpSettings

    def __init__(self, network: Network, settings: LoCoOpSettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        assert isinstance(network.encoder, VisionTower)
        self.embed_all = self.embedder(_AllFeatures(network.encoder))

    def prepare(self, weights: Weights) -> None:
        width = self.text_tower.width
        drawn = draw_contexts(1, self.settings.context_tokens, width, self.context.generator)
        self.prompts = LearnedPrompts(self.text_tower, self.names, drawn)
        self.update_network()

    @torch.no_grad()
    def update_network(self) -> None:
        """Write the text features of the learned prompts into the head."""
        self.head.text.copy_(self.prompts(self.text_tower))

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s = self.settings
        with torch.no_grad():  # (N, 1 + P, d): the image, then its patches
            features = F.normalize(self.embed_all(views.v1), dim=2)
        logits = self.head.scale * features @ self.prompts(self.text_tower).T
        ce = F.cross_entropy(logits[:, 0], views.labels)
        top = count_top(s.background_top, logits.shape[2])
        entropy = background_entropy(logits[:, 1:], views.labels, top)
        return {"loss": ce - s.background_weight * entropy, "ce": ce, "background": entropy}


def count_top(share: float, classes: int) -> int:
    """Return k: that share of the classes, at least one, and not all, for then no patch is background.

    >>> count_top(0.2, 1000), count_top(0.2, 6), count_top(0.2, 2), count_top(0.9, 3)
    (200, 1, 1, 2)
    """
    return max(1, min(round(share * classes), classes - 1))


def background_entropy(logits: Tensor, labels: Tensor, top: int) -> Tensor:
    """Return the mean entropy of softmax(logits) (N, P, K) over the patches that are background.

    Those whose ``top`` likeliest classes do not contain the image's label (N,); 0 if there are none.
    """
    likeliest = logits.topk(top, dim=2).indices
    background = (likeliest != labels[:, None, None]).all(dim=2)
    p = torch.softmax(logits, dim=2)
    entropy = -(p * (p + _LOG_OFFSET).log()).sum(2)
    return (entropy * background).sum() / background.sum().clamp(min=1)


class _AllFeatures(nn.Module):
    """The image tower, giving the features of image and patches."""

    def __init__(self, tower: VisionTower) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, x: Tensor) -> Tensor:
        return self.tower.all_features(x)
