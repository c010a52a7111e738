"""Encoders: from images to feature vectors."""

from .batch_norm import Domain
from .bodies import BODIES, Body, Plan
from .clip import PatchProbe, TextHead, VisionTower
from .conditional_decoder import ConditionalDecoder
from .encoders import ENCODERS, ModelSettings, build_encoder
from .evidence import Evidence
from .experts import Experts
from .heads import HEADS, DummiesHead, Head, LinearHead, MLPHead, PointsHead, build_head
from .hub_tower import HubTower
from .network import Answer, Network, NetworkSpec
from .pretrained import load_pretrained, read_weights
from .probes import PROBES, Probe, Sizes
from .reconstruct import Reconstruct
from .resnet import ResNet
from .rotation import TURNS, RotationProbe, turn
from .staged import StagedEncoder, require_stages
from .vgg32 import VGG32

BODIES["clip"] = VisionTower
BODIES["hub_tower"] = HubTower
HEADS[TextHead.kind] = TextHead
PROBES[PatchProbe.kind] = PatchProbe

__all__ = [
    "BODIES",
    "ENCODERS",
    "HEADS",
    "PROBES",
    "TURNS",
    "VGG32",
    "Answer",
    "Body",
    "ConditionalDecoder",
    "Domain",
    "DummiesHead",
    "Evidence",
    "Experts",
    "Head",
    "HubTower",
    "LinearHead",
    "MLPHead",
    "ModelSettings",
    "Network",
    "NetworkSpec",
    "Plan",
    "PointsHead",
    "Probe",
    "Reconstruct",
    "ResNet",
    "RotationProbe",
    "Sizes",
    "StagedEncoder",
    "build_encoder",
    "build_head",
    "load_pretrained",
    "read_weights",
    "require_stages",
    "turn",
]
