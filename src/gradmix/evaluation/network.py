"""A network that somebody else trained, scored by every detector, without a step of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from ..data import ImageSet
from ..errors import UserError
from ..models.given_network import GivenNetwork, network_from_module
from ..recognition import Recognizer
from ..recognition.given_network import extract_training, make_recognizer
from ..views import Normalizer
from .open_set import OpenSetResult, applicable_detectors, evaluate_open_set, learning_detectors

LARGEST_CIFAR_SIZE = 64  # up to here CIFAR10's mean and deviation are the usual ones, above it ImageNet's


@dataclass(frozen=True, eq=False)
class NetworkResult:
    """What was found, the recognizer that was made of the network, and the scores that need training images
    and were left out because there were none."""

    result: OpenSetResult
    recognizer: Recognizer
    left_out: tuple[str, ...] = ()


def evaluate_network(
    network: nn.Module | GivenNetwork,
    known: ImageSet,
    unknown: ImageSet | Mapping[str, ImageSet],
    *,
    train: ImageSet | None = None,
    normalizer: Normalizer | None = None,
    image_size: int = 32,
    detectors: Sequence[str] = (),
    cache: bool = True,
    severity: int | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> NetworkResult:
    """Score a trained network on ``known`` images, labelled in the order of its logits, and ``unknown`` ones.

    ``network`` is any module from images (N, C, H, W) to logits (see :func:`network_from_module`), or one
    made by :func:`network_from_weights`. Detectors that learn are fitted from ``train``, labelled in the same
    order; without it they are left out. ``detectors``: those named, or all that can be computed. The
    normalizer is :func:`default_normalizer` if none is given.
    """
    if isinstance(network, GivenNetwork):
        given = network
    else:
        given = network_from_module(network, len(known.class_names), image_size, known.channels)
    size, channels = given.spec.image_size, given.spec.channels
    known = known.convert(size, channels)
    normalizer = normalizer or default_normalizer(known, size)
    learned = None
    if train is not None:
        if train.class_names != known.class_names:
            raise UserError(
                "the training images have other classes, or in another order, than the known ones"
            )
        learned = extract_training(given, normalizer, train.convert(size, channels), cache)
    recognizer = make_recognizer(given, normalizer, known.class_names, learned)
    possible = learning_detectors(recognizer) if train is None else []
    missing = next((name for name in detectors if name.partition(":")[0] in possible), None)
    if missing is not None:
        raise UserError(
            f"detector '{missing}' learns from training images, and there are none: give some (train=…; "
            "on the command line --train FOLDER)"
        )
    names = list(detectors) or applicable_detectors(recognizer, learned)
    result = evaluate_open_set(recognizer, known, unknown, learned, names, cache, severity, groups)
    return NetworkResult(result, recognizer, () if detectors else tuple(possible))


def default_normalizer(images: ImageSet, size: int) -> Normalizer:
    """Return CIFAR10's mean and deviation for images of at most 64 pixels, else ImageNet's."""
    return Normalizer.fit(images.images, default_normalization(size))


def default_normalization(size: int) -> str:
    """Return the name of the usual normalization of images of this size.

    >>> default_normalization(64), default_normalization(224)
    ('cifar', 'imagenet')
    """
    return "cifar" if size <= LARGEST_CIFAR_SIZE else "imagenet"
