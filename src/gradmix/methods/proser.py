"""PROSER (Zhou et al. 2021): outputs kept free for what is of no known class.

Stage "classify" is cross-entropy. Stage "placeholders" fine-tunes all of it, with f̂ = (f, largest dummy):

    L = CE(f̂(x), y) + β · CE(f̂(x) without y, dummy) + γ · CE(f̂(x̃), dummy)

The second term makes the dummy the runner-up of every known image. x̃ is a mix λ·h + (1 − λ)·h' of the maps of
two images of different classes at a middle layer, which stands for the unknown. The first half of a batch is
mixed, the second is not, and both go through the rest of the encoder together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..data import ImageSet
from ..distributed.gradients import permute_rows
from ..errors import UserError, choose
from ..mixing import draw_mix
from ..models import DummiesHead, ModelSettings, Network, NetworkSpec, StagedEncoder, require_stages
from .checks import require_two_classes
from .interface import Context, Embed, Method, Stage, Views

PAIRS = ("paper", "released")
_FIRST = "classify"


@dataclass(frozen=True)
class PROSERSettings:
    """The placeholders, and how they are trained."""

    dummies: int = 1  # placeholders; the largest of them counts
    dummy_weight: float = 1.0  # β, of the dummy as the runner-up
    mixed_weight: float = 0.01  # γ, of the dummy as the answer to mixes
    mix_alpha: float = 1.0  # λ ~ Beta(α, α), one per batch
    mix_layer: str = ""  # where maps are mixed; "" is the middle of the encoder
    mix_pairs: str = "paper"  # paper: of different classes; released: any two, even an image with itself
    finetune_share: float = 0.1  # of the steps, for the second stage
    finetune_lr: float = 1e-3  # of its SGD, constant

    def __post_init__(self) -> None:
        choose("mix_pairs", self.mix_pairs, PAIRS)
        if self.dummies < 1:
            raise UserError(f"dummies must be at least 1, not {self.dummies}")
        for name in ("dummy_weight", "mixed_weight"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} must not be negative, not {getattr(self, name)}")
        for name in ("mix_alpha", "finetune_lr"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be positive, not {getattr(self, name)}")
        if not 0 < self.finetune_share < 1:
            raise UserError(f"finetune_share must lie between 0 and 1, not {self.finetune_share}")


class PROSER(Method):
    """Cross-entropy, then placeholders for the unknown; see the module."""

    Settings = PROSERSettings
    view_count = 1
    detector = "placeholder"
    settings: PROSERSettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network with placeholders beside the classes of its head."""
        head = {"kind": DummiesHead.kind, "classes": num_classes, "dummies": settings.dummies}
        return replace(plain, head={**head, "bias": model.classifier_bias})

    def __init__(self, network: Network, settings: PROSERSettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        encoder = require_stages(network.encoder, "proser")
        names = list(encoder.layer_names)
        layer = choose("mix_layer", settings.mix_layer or names[(len(names) - 1) // 2], names)
        until = self.context.call(_Until(encoder, layer))
        # Its bound method: a module would be registered a second time.
        self._maps: Embed = until.__call__ if isinstance(until, nn.Module) else until
        self._embed_maps = self.embedder(_From(network, encoder, layer))

    def check_images(self, images: ImageSet) -> None:
        require_two_classes(images, "proser")

    def stages(self) -> tuple[Stage, ...]:
        s = self.settings
        first = ("network.encoder", "network.projection", "network.classifier.known")
        tuning = {"optimizer": "sgd", "lr": s.finetune_lr, "lr_min": s.finetune_lr}
        constant = {"schedule": "cosine", "warmup_steps": 0}
        return (
            Stage(_FIRST, 1 - s.finetune_share, first),
            Stage("placeholders", s.finetune_share, None, tuning | constant),
        )

    def losses(self, views: Views, generator: torch.Generator) -> dict[str, Tensor]:
        s, labels, head = self.settings, views.labels, self.network.classifier
        assert isinstance(head, DummiesHead)
        if views.progress.stage == _FIRST:
            return {"loss": F.cross_entropy(head(self.embed(views.v1)), labels)}
        half = len(labels) // 2
        order, is_mix = draw_partners(labels.cpu(), half, s.mix_pairs, generator)
        lam = draw_mix(s.mix_alpha, generator)
        maps = self._maps(views.v1)
        own = self.own_rows(torch.where(is_mix, lam, 1.0)).to(maps)[:, None, None, None]
        maps = own * maps + (1 - own) * permute_rows(maps, order, self.context.group)
        z = self._embed_maps(maps)
        logits, dummies = head(z), head.dummies(z)
        used = is_mix[:half].to(labels.device)
        mixed = mixed_loss(logits[:half], dummies[:half], used)
        known, runner_up = placeholder_losses(logits[half:], dummies[half:], labels[half:])
        loss = known + s.dummy_weight * runner_up + s.mixed_weight * mixed
        return {"loss": loss, "ce": known, "dummy": runner_up, "mixed": mixed}


def placeholder_losses(logits: Tensor, dummies: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean CE(f̂, y), and the mean CE(f̂ without y, dummy), of f̂ = (f, max dummy).

    logits: (N, K), dummies: (N, D), labels: (N,).

    >>> one, two = torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5]])
    >>> [round(float(loss), 4) for loss in placeholder_losses(one, two, torch.tensor([0]))]
    [0.4644, 0.9741]
    """
    answers = _with_dummy(logits, dummies)
    itself = F.one_hot(labels, answers.shape[1]).bool()
    others = answers.masked_fill(itself, float("-inf"))
    dummy = torch.full_like(labels, logits.shape[1])
    return F.cross_entropy(answers, labels), F.cross_entropy(others, dummy)


def mixed_loss(logits: Tensor, dummies: Tensor, used: Tensor) -> Tensor:
    """Return the mean of CE(f̂, dummy) over the rows that are ``used`` (N,); 0 if none is."""
    answers = _with_dummy(logits, dummies)
    target = torch.full((len(logits),), logits.shape[1], device=logits.device)
    each = F.cross_entropy(answers, target, reduction="none")
    return each.where(used, 0.0).sum() / used.sum().clamp(min=1)


def _with_dummy(logits: Tensor, dummies: Tensor) -> Tensor:
    return torch.cat([logits, dummies.amax(1, keepdim=True)], dim=1)


def draw_partners(labels: Tensor, half: int, pairs: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a permutation (N,) of the first ``half`` of a batch, the rest fixed, and who has a partner (N,).

    ``paper``: partners are of different classes. The images are sorted by class, classes and images in random
    order, and each gets the one m places further, m being the size of the largest class: so only members of a
    class with more than half of the images can meet their own kind, as few as possible; they have no partner.
    """
    n = len(labels)
    partner, has_partner = torch.arange(n), torch.zeros(n, dtype=torch.bool)
    order = torch.randperm(half, generator=generator)
    if pairs == "released":
        partner[:half], has_partner[:half] = order, True
        return partner, has_partner
    counts = labels[:half].bincount()
    place = torch.randperm(len(counts), generator=generator)[labels[:half]]
    order = order[place[order].argsort(stable=True)]
    partner[order] = order.roll(-int(counts.max()))
    return partner, labels != labels[partner]


class _Until(nn.Module):
    """Images (N, C, H, W) to the maps at a layer."""

    def __init__(self, encoder: StagedEncoder, layer: str) -> None:
        super().__init__()
        self.encoder, self.layer = encoder, layer

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder.forward_until(self.layer, x)


class _From(nn.Module):
    """Maps at a layer to embeddings (N, d)."""

    def __init__(self, network: Network, encoder: StagedEncoder, layer: str) -> None:
        super().__init__()
        self.encoder, self.projection, self.layer = encoder, network.projection, layer

    def forward(self, maps: Tensor) -> Tensor:
        z: Tensor = self.projection(self.encoder.pool(self.encoder.forward_from(self.layer, maps)))
        return z
