"""What goes into a detector and what comes out: one extraction feeds every one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from ..errors import UserError


@dataclass(frozen=True)
class Outputs:
    """What the network says about N images.

    ``features``: (N, d), not necessarily of unit length; ``labels``: (N,) int64, -1 where unknown;
    ``logits``: (N, C), for networks that have a classifier.
    """

    features: Tensor
    labels: Tensor
    logits: Tensor | None = None

    def __post_init__(self) -> None:
        if self.features.ndim != 2:
            raise UserError(f"features must be (images, dimensions), not {tuple(self.features.shape)}")
        if self.labels.shape != (len(self.features),):
            raise UserError(
                f"{len(self.features)} features but labels of shape {tuple(self.labels.shape)}: "
                "one label an image is needed (-1 where unknown)"
            )
        if self.logits is not None and (self.logits.ndim != 2 or len(self.logits) != len(self.features)):
            raise UserError(
                f"{len(self.features)} features but logits of shape {tuple(self.logits.shape)}: "
                "one row an image is needed"
            )


@dataclass(frozen=True)
class Scores:
    """A detector's answer: ``score`` (N,) float64, higher = more likely known, always finite;
    ``label`` (N,) int64, the known class 0..C-1 the image belongs to if it is known at all."""

    score: Tensor
    label: Tensor


class Detector(Protocol):
    """Learns from the training images of the known classes, then scores any others."""

    name: str
    needs_logits: bool

    def fit(self, train: Outputs, num_classes: int) -> Self: ...

    def score(self, test: Outputs) -> Scores: ...


def require_finite(values: Tensor, what: str) -> Tensor:
    """Return ``values`` if all are finite, else name the first image that has NaN or infinity."""
    if not bool(torch.isfinite(values).all()):
        culprit = int((~torch.isfinite(values)).flatten(1).any(dim=1).nonzero()[0])
        raise UserError(
            f"the {what} of image {culprit} are not finite; "
            "the training probably diverged: lower the learning rate"
        )
    return values


def require_known_labels(train: Outputs, num_classes: int) -> None:
    """Every training image must carry a known class: a detector is never shown unknown ones."""
    if len(train.labels) == 0:
        raise UserError("no training images to fit the detector on")
    if num_classes < 1:
        raise UserError(f"num_classes must be at least 1, not {num_classes}")
    outside = (train.labels < 0) | (train.labels >= num_classes)
    if bool(outside.any()):
        culprit = int(outside.nonzero()[0])
        raise UserError(
            f"training image {culprit} has label {int(train.labels[culprit])}; "
            f"detectors learn from known images only, labels 0 to {num_classes - 1}"
        )


def clamp_to_finite(score: Tensor) -> Tensor:
    """Bring overflowed scores back to the largest finite float32, so that sums and files survive them.

    >>> clamp_to_finite(torch.tensor([1.0, -torch.inf]))
    tensor([ 1.0000e+00, -3.4028e+38])
    """
    limit = torch.finfo(torch.float32).max
    return score.clamp(-limit, limit)
