"""A recognizer from a network that somebody else trained, without a step of training.

With training images of the known classes it has all that any other model has: the index of their features,
from which every detector can be fitted, and a threshold. Without, it has the network alone: scores that learn
nothing can be computed, and nothing is ever rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..data import ImageSet
from ..detection import KNN, MLS, Decision, Detector, KnownScores, Outputs
from ..errors import UserError
from ..models.given_network import GivenNetwork
from ..views import Normalizer
from .calibration import set_decision
from .features import cached_extract
from .model_checks import check_names
from .recognizer import Gallery, Recognizer

_FALSE_REJECT = 0.05  # share of the training images that the threshold rejects


def extract_training(
    given: GivenNetwork, normalizer: Normalizer, train: ImageSet, cache: bool = True
) -> Outputs:
    """Return what the network says about training images, which must have its size and channels."""
    return cached_extract(given.network, normalizer, train, "features of the training images", use=cache)


def make_recognizer(
    given: GivenNetwork,
    normalizer: Normalizer,
    class_names: Sequence[str],
    train: Outputs | None = None,
    facts: dict[str, Any] | None = None,
) -> Recognizer:
    """Return the recognizer that decides by the largest logit, or by neighbours if there are no logits.

    Its threshold rejects 5 % of the training images. The network was trained on them, so they score higher
    than new ones, and nothing is promised. ``facts`` say where the network comes from.
    """
    check_names(class_names)
    classes, index = len(class_names), KNN()
    if train is not None:
        index.fit(train, classes)
    if given.network.classifier is not None:
        detector: Detector = MLS()
        if train is not None:
            detector.fit(train, classes)
    elif train is not None:
        detector = index
    else:
        raise UserError(
            "this network has no classifier, and neighbours need training images of the known classes: "
            "give --train DIR"
        )
    if train is None:
        nothing = KnownScores.none(classes)
        decision = Decision(detector, nothing.threshold(_FALSE_REJECT), known=nothing)
    else:
        decision = set_decision(detector, classes, train, None, _FALSE_REJECT)
    return Recognizer(
        given.network,
        given.spec,
        normalizer,
        index,
        decision,
        tuple(class_names),
        recipe=facts or {},
        gallery=Gallery(),
    )
