"""OpenAUC (Wang et al. 2022): a known image that is named right shall score above a made-up unknown one.

    z̃_j = μ·z_j + (1 − μ)·z_π(j),   f̃ = head(z̃)                   mixes of two classes stand for the unknown
    L = CE(f, y) + λ · mean over pairs (i, j) of (max f̃_j − max f_i + 1)²

i runs over the images of the first half of the batch that the classifier names right, j over the mixes within
the second half whose two images are of different classes. The square is the surrogate of the 0-1 loss in the
metric OpenAUC, P(named right and scored above an unknown one). Nothing goes through the encoder twice: the
mixes are of embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet
from ..errors import UserError, choose
from ..mixing import draw_mix
from .checks import require_two_classes
from .interface import Method, Views

PAIRS = ("paper", "released")


@dataclass(frozen=True)
class OpenAUCSettings:
    """The weight of the ranking term, and what is ranked."""

    auc_weight: float = 0.1  # λ
    auc_pairs: str = "paper"  # paper: every known image with every mix; released: the i-th with the i-th
    mix_alpha: float = 2.0  # μ ~ Beta(α, α), one per batch
    label_smoothing: float = 0.0  # in the cross-entropy alone

    def __post_init__(self) -> None:
        choose("auc_pairs", self.auc_pairs, PAIRS)
        if not self.auc_weight >= 0:
            raise UserError(f"auc_weight must not be negative, not {self.auc_weight}")
        if not self.mix_alpha > 0:
            raise UserError(f"mix_alpha must be positive, not {self.mix_alpha}")
        if not 0 <= self.label_smoothing < 1:
            raise UserError(f"label_smoothing must lie in [0, 1), not {self.label_smoothing}")


class OpenAUC(Method):
    """Cross-entropy, and known images ranked above mixes of two classes; see the module."""

    Settings = OpenAUCSettings
    needs_classifier = True
    view_count = 1
    detector = "mls"
    settings: OpenAUCSettings

    def check_images(self, images: ImageSet) -> None:
        require_two_classes(images, "openauc")

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s, labels = self.settings, views.labels
        z = self.embed(views.v1)
        logits = self.logits(z)
        ce = F.cross_entropy(logits, labels, label_smoothing=s.label_smoothing)

        half = len(labels) // 2  # of an odd batch the last image is in the cross-entropy only
        known, mixed = slice(half), slice(half, 2 * half)
        order = torch.randperm(half, generator=generator).to(labels.device)
        mu = draw_mix(s.mix_alpha, generator)
        mixes = mu * z[mixed] + (1 - mu) * z[mixed][order]
        of_two_classes = labels[mixed] != labels[mixed][order]
        hit = logits[known].argmax(1) == labels[known]
        auc = ranking_loss(
            logits[known].amax(1), hit, self.logits(mixes).amax(1), of_two_classes, s.auc_pairs
        )
        return {"loss": ce + s.auc_weight * auc, "ce": ce, "auc": auc}


def ranking_loss(known: Tensor, hit: Tensor, mixed: Tensor, counts: Tensor, pairs: str = "paper") -> Tensor:
    """Return the mean of (mixed_j − known_i + 1)² over the pairs (i, j) with hit_i and counts_j; 0 if none.

    Scores ``known`` and ``mixed`` (H,), masks ``hit`` and ``counts`` (H,). ``pairs``: all of them (``paper``)
    or those with i = j (``released``).

    >>> known, hit = torch.tensor([3.0, 2.0]), torch.tensor([True, False])
    >>> float(ranking_loss(known, hit, torch.tensor([1.5, 4.0]), torch.tensor([True, True]), "released"))
    0.25
    """
    if pairs == "paper":
        difference, used = mixed[None, :] - known[:, None], hit[:, None] & counts[None, :]
    else:
        difference, used = mixed - known, hit & counts
    squares = (difference + 1).square()
    return squares.where(used, 0.0).sum() / used.sum().clamp(min=1)
