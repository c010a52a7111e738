"""What the CLIP methods share: frozen towers, class names as text, and prompts that can be learned.

The image tower is the network's encoder; the text features of the classes are its head, so that a model
needs neither text tower nor tokenizer to answer. The text tower is here only while a method is at work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import UserError, choose
from ..models import ModelSettings, Network, NetworkSpec
from ..models.clip import TextHead, TextTower, VisionTower, load_tokenizer, read_scale
from ..models.clip.transformer import ACTIVATIONS
from ..models.clip.vision import KIND
from ..models.clip.weights import Weights
from .interface import Context, Method

_WORDNET = re.compile(r"n\d{8}")
_SPREAD = 0.02  # standard deviation of a drawn context


@dataclass(frozen=True)
class CLIPSettings:
    """What the weights do not tell."""

    clip_activation: str = "quick_gelu"  # that of OpenAI's weights; gelu: those of LAION and OpenCLIP

    def __post_init__(self) -> None:
        choose("clip_activation", self.clip_activation, ACTIVATIONS)


class CLIPMethod(Method):
    """Both towers of CLIP, frozen, and a head of text features; a subclass says which texts."""

    unit_features = True
    view_count = 1
    detector = "mcm"
    sees_patches: ClassVar[bool] = False  # the network tells the best patch's share too, for GL-MCM
    settings: CLIPSettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the image tower with text features as its head; sizes come with the weights."""
        return replace(
            plain,
            encoder=KIND,
            projection="none",
            unit_features=True,
            body={"kind": KIND, "activation": settings.clip_activation},
            head={"kind": TextHead.kind, "classes": num_classes},
            probe={"kind": "patches"} if cls.sees_patches else None,
        )

    def __init__(self, network: Network, settings: CLIPSettings, context: Context | None = None) -> None:
        super().__init__(network, settings, context)
        tower = network.encoder
        assert isinstance(tower, VisionTower)
        assert isinstance(network.classifier, TextHead)
        self.names = readable_names(self.context.class_names)
        weights = tower.take_text_weights()
        tower.requires_grad_(False)
        # In a tuple and so no submodule: it is not trained, and a file has its weights, not the checkpoint.
        self._frozen = (self.make_text_tower(weights),)
        self.head.scale.copy_(read_scale(weights))
        self.prepare(weights)

    def prepare(self, weights: Weights) -> None:
        """Make the texts, given the text half of CLIP's weights."""
        raise NotImplementedError

    def make_text_tower(self, weights: Weights) -> TextTower:
        """Return a text tower like the network in device and precision."""
        text, image = TextTower(weights, self.settings.clip_activation), next(self.network.parameters())
        if text.text_projection.shape[1] != self.network.feature_dim:
            raise UserError(
                f"init: 'text_projection' gives {text.text_projection.shape[1]} numbers and 'visual.proj' "
                f"{self.network.feature_dim}: the two towers are not of one CLIP"
            )
        return text.to(image.device, image.dtype)

    @property
    def text_tower(self) -> TextTower:
        """The text tower."""
        return self._frozen[0]

    @property
    def head(self) -> TextHead:
        """The network's head."""
        head = self.network.classifier
        assert isinstance(head, TextHead)
        return head


class LearnedPrompts(nn.Module):
    """Prompts [start][context][name][stop][end] whose contexts (M, C, width) are learned, shared by classes.

    Called, it gives the text features (K·M, dim): those of class k from k·M on.
    """

    contexts: nn.Parameter
    start: Tensor
    names: Tensor
    ends: Tensor

    def __init__(self, tower: TextTower, names: Sequence[str], contexts: Tensor, stop: str = ".") -> None:
        """``contexts`` (M, C, width) to begin with; ``stop`` follows a name."""
        super().__init__()
        tokenizer, (self.count, length, _) = load_tokenizer(), contexts.shape
        numbers = [[*tokenizer.encode(name + stop), tokenizer.end] for name in names]
        longest = max(map(len, numbers))
        if 1 + length + longest > tower.context:
            name = names[[len(row) for row in numbers].index(longest)]
            raise UserError(
                f"class '{name}' with a context of {length} is longer than the {tower.context} tokens that "
                "CLIP reads; shorten the name"
            )
        padded = torch.tensor([row + [0] * (longest - len(row)) for row in numbers])
        ends = torch.tensor([length + len(row) for row in numbers])
        self.contexts = nn.Parameter(contexts.detach().clone().to(tower.positional_embedding))
        with torch.no_grad():  # not in the checkpoint: the class names make them again
            self.register_buffer("start", tower.embed(torch.tensor([[tokenizer.start]])), persistent=False)
            self.register_buffer("names", tower.embed(padded), persistent=False)
        self.register_buffer("ends", ends.to(self.names.device), persistent=False)

    def forward(self, tower: TextTower) -> Tensor:
        classes, m = len(self.names), self.count
        rows = classes * m
        start = self.start.expand(rows, -1, -1)
        contexts = self.contexts.repeat(classes, 1, 1)
        names = self.names.repeat_interleave(m, dim=0)
        features: Tensor = tower(torch.cat([start, contexts, names], dim=1), self.ends.repeat_interleave(m))
        return features


def draw_contexts(count: int, tokens: int, width: int, generator: torch.Generator) -> Tensor:
    """Return ``count`` contexts (count, tokens, width) drawn from N(0, 0.02²)."""
    return _SPREAD * torch.randn(count, tokens, width, generator=generator)


def embed_words(tower: TextTower, words: str) -> Tensor:
    """Return the context (1, C, width) that these words are."""
    numbers = load_tokenizer().encode(words)
    if not numbers:
        raise UserError(f"context_words '{words}' are no words; leave it empty to draw a context")
    with torch.no_grad():
        return tower.embed(torch.tensor([numbers]))


def readable_names(names: Sequence[str]) -> list[str]:
    """Return class names as CLIP reads them; raise UserError where they are numbers, or there are none."""
    if not any(any(c.isalpha() for c in name) and not _WORDNET.fullmatch(name) for name in names):
        example = f"'{names[0]}' tells it nothing" if names else "there are none"
        raise UserError(
            f"CLIP reads the names of the classes, and {example}; name the classes (their folders) in words"
        )
    return [" ".join(name.replace("_", " ").split()) for name in names]
