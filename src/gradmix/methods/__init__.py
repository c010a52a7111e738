"""What one training step computes. A new method is one file here, one line below, and a recipe."""

from .cross_entropy import CrossEntropy, CrossEntropySSL
from .gradmix import GradMixMethod
from .interface import Embed, Embedder, Method, Views
from .moco import MoCo

METHODS: dict[str, type[Method]] = {
    "gradmix": GradMixMethod,
    "ce": CrossEntropy,
    "ce+ssl": CrossEntropySSL,
    "moco": MoCo,
}

__all__ = [
    "METHODS",
    "CrossEntropy",
    "CrossEntropySSL",
    "Embed",
    "Embedder",
    "GradMixMethod",
    "Method",
    "MoCo",
    "Views",
]
