"""Encoders: from images to feature vectors."""

from .encoders import ENCODERS, ModelSettings, build_encoder
from .network import Network
from .pretrained import load_pretrained, read_weights
from .resnet import ResNet

__all__ = [
    "ENCODERS",
    "ModelSettings",
    "Network",
    "ResNet",
    "build_encoder",
    "load_pretrained",
    "read_weights",
]
