"""MCM, maximum concept matching (Ming et al. 2022): CLIP as it is, told the names of the classes.

Nothing is trained. t_k is the text feature of "a photo of a {name}", s_k = cos(z, t_k); the label is the
largest s, the score max_k softmax(s/τ)_k with τ = 1, without CLIP's logit scale (see detection/mcm.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..errors import UserError
from ..models import ModelSettings, NetworkSpec
from ..models.clip import encode_names
from ..models.clip.weights import Weights
from .clip_prompts import CLIPMethod, CLIPSettings


@dataclass(frozen=True)
class MCMSettings(CLIPSettings):
    """The texts."""

    prompts: tuple[str, ...] = ("a photo of a {}",)  # {} is the class name; several are averaged
    local_scores: bool = False  # also what the patches say, for the detector gl-mcm: another pass per image

    def __post_init__(self) -> None:
        super().__post_init__()
        for prompt in self.prompts or ("",):
            if prompt.count("{}") != 1:
                raise UserError(f"prompts: '{prompt}' must have one {{}}, where the class name goes")


class MCM(CLIPMethod):
    """No objective, and so no step: the text features of the class names are the classifier."""

    Settings = MCMSettings
    needs_training = False
    settings: MCMSettings

    @classmethod
    def describe_network(
        cls, plain: NetworkSpec, settings: Any, model: ModelSettings, num_classes: int
    ) -> NetworkSpec:
        """Return the network of all CLIP methods, with patches where they are wanted."""
        spec = super().describe_network(plain, settings, model, num_classes)
        return replace(spec, probe={"kind": "patches"} if settings.local_scores else None)

    def prepare(self, weights: Weights) -> None:
        self.head.text.copy_(encode_names(self.text_tower, self.names, self.settings.prompts))
