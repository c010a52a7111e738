"""What one training step computes. A new method is one file here, one line below, and a recipe."""

from .attentive_cutmix import AttentiveCutMix
from .cross_entropy import CrossEntropy, CrossEntropySSL
from .frozen import Frozen
from .gradmix import GradMixMethod
from .interface import Embed, Embedder, Method, Views
from .moco import MoCo

METHODS: dict[str, type[Method]] = {
    "gradmix": GradMixMethod,
    "ce": CrossEntropy,
    "ce+ssl": CrossEntropySSL,
    "moco": MoCo,
    "frozen": Frozen,
    "attentive-cutmix": AttentiveCutMix,
}

__all__ = [
    "METHODS",
    "AttentiveCutMix",
    "CrossEntropy",
    "CrossEntropySSL",
    "Embed",
    "Embedder",
    "Frozen",
    "GradMixMethod",
    "Method",
    "MoCo",
    "Views",
]
