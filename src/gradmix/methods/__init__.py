"""What one training step computes. A new method is one file here, one line below, and a recipe."""

from .cross_entropy import CrossEntropy, CrossEntropySSL
from .gradmix import GradMixMethod
from .interface import Embed, Method, Views

METHODS: dict[str, type[Method]] = {
    "gradmix": GradMixMethod,
    "ce": CrossEntropy,
    "ce+ssl": CrossEntropySSL,
}

__all__ = ["METHODS", "CrossEntropy", "CrossEntropySSL", "Embed", "GradMixMethod", "Method", "Views"]
