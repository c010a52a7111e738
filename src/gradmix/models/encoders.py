"""Encoders by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from ..errors import UserError, choose
from .convnet import ConvNet
from .efficientnet_lite import EfficientNetLite
from .pretrained import load_pretrained, read_weights
from .published import find_weights
from .resnet import STEMS, BasicBlock, Bottleneck, ResNet
from .staged import StagedEncoder
from .tower_files import is_tower, parse_tower, read_tower
from .vgg32 import VGG32

BACKBONE = "backbone"  # the name in a recipe of a module of the user's own; see backbone.py
LARGEST_SMALL_IMAGE = 64  # up to here a stem at full resolution, above it ImageNet's


@dataclass(frozen=True)
class ModelSettings:
    """Which network."""

    # Or 34, 50; efficientnet_lite0, 1, 2; vgg32; for CPUs conv7_W, resnet8_W, resnet10_W, W = 16, 32, 48, 64;
    # or hf:OWNER/NAME[@REVISION], an image tower of the Hub, or hf:./FOLDER with the same files
    encoder: str = "resnet18"
    stem: str = "auto"  # small (full resolution), half, imagenet; auto: by image size
    feature_dim: int = 128  # dimensions of the embedding z
    projection: str = "linear"  # linear, mlp (one hidden layer), or none: z is what the encoder gives
    classifier_bias: bool = True  # of a linear classifier, for methods that have one
    init: str = ""  # weights to start from: pretrained (from a package), a file, or hf://owner/name
    init_head: bool = False  # the linear classifier from there too (fc); its classes in the file's order
    freeze: str = ""  # a layer, as conv4_2: it and all before it stay as they were in init

    def __post_init__(self) -> None:
        if is_tower(self.encoder):
            parse_tower(self.encoder)
            if self.init:
                raise UserError(f"init: encoder {self.encoder} brings its own weights; leave init out")
        elif self.encoder != BACKBONE:
            choose("encoder", self.encoder, ENCODERS)
        choose("stem", self.stem, ("auto", *STEMS))
        choose("projection", self.projection, ("linear", "mlp", "none"))
        if self.feature_dim < 1:
            raise UserError(f"feature_dim must be at least 1, not {self.feature_dim}")
        if self.init_head and not self.init:
            raise UserError("init_head: there is no file to take the classifier from; give init")
        if self.freeze and not self.init and self.encoder != BACKBONE:
            raise UserError("freeze: without trained weights there is nothing worth keeping; give init")


def _resnet(
    block: type[BasicBlock] | type[Bottleneck], depths: tuple[int, ...], width: int = 64
) -> Callable[[int, str], ResNet]:
    return lambda channels, stem: ResNet(block, depths, width, channels, stem)


def _convnet(width: int) -> Callable[[int, str], ConvNet]:
    return lambda channels, stem: ConvNet(width, channels, stem)


def _efficientnet_lite(depth: float, width: float) -> Callable[[int, str], EfficientNetLite]:
    return lambda channels, stem: EfficientNetLite(depth, width, channels)


def _vgg32(dropout: float) -> Callable[[int, str], VGG32]:
    return lambda channels, stem: VGG32(channels, dropout)


ENCODERS: dict[str, Callable[[int, str], StagedEncoder]] = {
    "resnet18": _resnet(BasicBlock, (2, 2, 2, 2)),
    "resnet34": _resnet(BasicBlock, (3, 4, 6, 3)),
    "resnet50": _resnet(Bottleneck, (3, 4, 6, 3)),
    # For training on a CPU: one block per stage, the last number is the width of the first stage. With
    # three stages instead of four, small images keep a feature map worth the name (a 3x3 convolution
    # over 2x2 pixels is mostly padding, and three times slower per multiplication).
    "resnet8_16": _resnet(BasicBlock, (1, 1, 1), 16),
    "resnet8_32": _resnet(BasicBlock, (1, 1, 1), 32),
    "resnet8_48": _resnet(BasicBlock, (1, 1, 1), 48),
    "resnet8_64": _resnet(BasicBlock, (1, 1, 1), 64),
    "resnet10_16": _resnet(BasicBlock, (1, 1, 1, 1), 16),
    "resnet10_32": _resnet(BasicBlock, (1, 1, 1, 1), 32),
    "resnet10_48": _resnet(BasicBlock, (1, 1, 1, 1), 48),
    "resnet10_64": _resnet(BasicBlock, (1, 1, 1, 1), 64),
    "conv7_16": _convnet(16),
    "conv7_32": _convnet(32),
    "conv7_48": _convnet(48),
    "conv7_64": _convnet(64),
    # Small ones whose ImageNet weights a package carries (init: pretrained).
    "efficientnet_lite0": _efficientnet_lite(1.0, 1.0),
    "efficientnet_lite1": _efficientnet_lite(1.1, 1.0),
    "efficientnet_lite2": _efficientnet_lite(1.2, 1.1),
    # The network of the open-set literature, with and without its dropout.
    "vgg32": _vgg32(0.2),
    "vgg32_plain": _vgg32(0.0),
}


def find_encoder(name: str) -> Callable[[int, str], StagedEncoder]:
    """Return what makes an encoder for images of so many channels, with such a stem."""
    if name == BACKBONE and name not in ENCODERS:
        raise UserError(
            "encoder backbone is a module of your own: give it by --backbone FILE.py:FUNCTION, or in Python "
            "by backbone=…"
        )
    return ENCODERS[choose("encoder", name, ENCODERS)]


def own_normalization(settings: ModelSettings) -> str | tuple[tuple[float, ...], tuple[float, ...]]:
    """Return what the encoder's published weights were trained with: a name, or means and deviations."""
    if is_tower(settings.encoder):
        preparation = read_tower(settings.encoder).preparation
        return preparation.mean, preparation.std
    return "tf" if settings.encoder.startswith("efficientnet_lite") else "imagenet"


def build_encoder(settings: ModelSettings, image_size: int, channels: int) -> nn.Module:
    """Build an encoder with a ``dim``: fresh weights from torch's global generator, or those of ``init``."""
    weights = read_weights(find_weights(settings.init, settings.encoder)) if settings.init else None
    stem = resolve_stem(settings.stem, image_size, weights)
    encoder = find_encoder(settings.encoder)(channels, stem)
    if weights is not None:
        load_pretrained(encoder, weights, settings.init)
    return encoder


def resolve_stem(stem: str, image_size: int, weights: dict[str, Tensor] | None = None) -> str:
    """Return the stem; ``auto`` follows the given weights, else the image size."""
    if stem != "auto":
        return stem
    if weights is not None and "conv1.weight" in weights:
        return "imagenet" if weights["conv1.weight"].shape[-1] == 7 else "small"
    return "small" if image_size <= LARGEST_SMALL_IMAGE else "imagenet"
