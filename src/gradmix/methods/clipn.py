"""CLIPN (Wang et al. 2023): a second text tower that was taught to say no. For inference alone.

f_k is the logit of "a photo of a {name}" from CLIP's text tower, g_k that of the same text from the second
one, with the mean of its learned prompts added to the token embeddings; q_k = σ(f_k − g_k). The second tower
was trained on three million pairs, so its weights must be given: ``init`` is a file that CLIPN's authors
released. Scores: ``clipn-atd`` and ``clipn-ctw`` (see detection/mcm.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import UserError
from ..models import ModelSettings, NetworkSpec
from ..models.clip import TextHead, denying_tower, encode_names
from ..models.clip.weights import Weights
from .mcm import MCM


class CLIPN(MCM):
    """MCM's texts twice: affirmed and denied."""

    detector = "clipn-atd"

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network of MCM with a head that denies classes too."""
        spec = super().describe_network(plain, settings, model, num_classes)
        return replace(spec, head={"kind": TextHead.kind, "classes": num_classes, "denies": True})

    def prepare(self, weights: Weights) -> None:
        super().prepare(weights)
        tower = self.make_text_tower(denying_tower(weights))
        prompts = weights.get("prompt_no")
        wanted = tuple(tower.positional_embedding.shape)
        if prompts is None or tuple(prompts.shape[1:]) != wanted:
            found = "these weights lack 'prompt_no'" if prompts is None else "'prompt_no' has another shape"
            raise UserError(f"init: {found}; clipn needs its prompts, (16, {wanted[0]}, {wanted[1]})")
        self.head.no_text.copy_(encode_names(tower, self.names, self.settings.prompts, prompts.mean(0)))
