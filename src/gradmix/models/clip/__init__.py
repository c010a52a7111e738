"""CLIP (Radford et al. 2021) in plain torch: image tower, text tower, tokenizer, published weights."""

from .head import TextHead
from .patches import PatchProbe
from .text import TextTower, encode_names, read_scale
from .tokens import Tokenizer, load_tokenizer, tokenize
from .vision import VisionTower
from .weights import denying_tower, use_openai_names

__all__ = [
    "PatchProbe",
    "TextHead",
    "TextTower",
    "Tokenizer",
    "VisionTower",
    "denying_tower",
    "encode_names",
    "load_tokenizer",
    "read_scale",
    "tokenize",
    "use_openai_names",
]
