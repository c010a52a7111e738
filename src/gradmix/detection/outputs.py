"""What goes into a detector and what comes out: one extraction feeds every one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..errors import UserError

# Which models give what beside features, by the names of the outputs: for error messages.
GIVEN_BY = {
    "logits": "models trained with ce, ce+ssl, arpl and the like",
    "dummies": "models trained with proser",
    "errors": "models trained with c2ae",
    "rotation": "models trained with rotpred",
    "cosines": "models of mcm and other CLIP methods",
    "local_mcm": "models of locoop and other CLIP methods with patches",
    "negative_cosines": "models trained with negprompt",
    "no_logits": "models of clipn",
    "penultimate": "all networks with the images at hand",
    "head": "models trained with ce and the like, without projection: mlp,",
}

_ROWS_AT_ONCE = 4096  # bounds what checking them takes


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The linear head on the penultimate activation: f = W h + b, ``weight`` (K, d_h) and ``bias`` (K,).

    >>> HeadWeights(torch.eye(2), torch.tensor([0.0, 1.0])).logits(torch.tensor([[3.0, 4.0]]))
    tensor([[3., 5.]])
    """

    weight: Tensor
    bias: Tensor

    def __post_init__(self) -> None:
        if self.weight.ndim != 2 or self.bias.shape != self.weight.shape[:1]:
            raise UserError(
                f"a head has weights (classes, dimensions) and one bias per class, not "
                f"{tuple(self.weight.shape)} and {tuple(self.bias.shape)}"
            )

    def logits(self, h: Tensor) -> Tensor:
        """Return W h + b (N, K) of activations (N, d_h), in their precision."""
        return h @ self.weight.to(h.dtype).T + self.bias.to(h.dtype)

    def double(self) -> HeadWeights:
        """Return the same in float64."""
        return HeadWeights(self.weight.double(), self.bias.double())


@dataclass(frozen=True)
class Outputs:
    """What the network says about N images.

    ``features``: (N, d), not necessarily of unit length; ``labels``: (N,) int64, -1 where unknown;
    ``logits``: (N, C), for networks that have a head; ``extra``: what else the head gives, (N, …) by name.
    ``penultimate``: (N, d_h), what the encoder gives before any projection; it may be the very tensor of the
    features. ``head``: the linear map from there to the logits, where there is one.
    """

    features: Tensor
    labels: Tensor
    logits: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    penultimate: Tensor | None = None
    head: HeadWeights | None = None

    def __post_init__(self) -> None:
        if self.features.ndim != 2:
            raise UserError(f"features must be (images, dimensions), not {tuple(self.features.shape)}")
        n = self.features.shape[0]  # not len, which is a number even where the exporter has a symbol
        if self.labels.shape != (n,):
            raise UserError(
                f"{n} features but labels of shape {tuple(self.labels.shape)}: "
                "one label per image is needed (-1 where unknown)"
            )
        if self.logits is not None and (self.logits.ndim != 2 or self.logits.shape[0] != n):
            raise UserError(
                f"{n} features but logits of shape {tuple(self.logits.shape)}: one row per image is needed"
            )
        self._check_penultimate()
        for name, values in self.extra.items():
            if values.shape[0] != n:
                raise UserError(f"{n} features but {len(values)} rows of '{name}'")

    def _check_penultimate(self) -> None:
        h = self.penultimate
        if h is None:
            return
        if h.ndim != 2 or h.shape[0] != self.features.shape[0]:
            raise UserError(
                f"{len(self.features)} features but penultimate activations of shape {tuple(h.shape)}: "
                "one row per image is needed"
            )
        if self.head is not None and self.head.weight.shape[1] != h.shape[1]:
            raise UserError(
                f"penultimate activations have {h.shape[1]} dimensions, the head {self.head.weight.shape[1]}"
            )

    def select(self, rows: Tensor | slice) -> Outputs:
        """Return those of some images: ``rows`` are numbers, a boolean mask, or a slice (no copies)."""
        features = self.features[rows]
        h = self.penultimate
        return replace(
            self,
            features=features,
            labels=self.labels[rows],
            logits=None if self.logits is None else self.logits[rows],
            extra={name: values[rows] for name, values in self.extra.items()},
            penultimate=features if h is self.features else None if h is None else h[rows],
        )

    @property
    def parts(self) -> frozenset[str]:
        """Return the names of what there is: features, logits, and the names of the extra outputs."""
        there = {
            "features": self.features.shape[1] > 0,
            "logits": self.logits is not None,
            "penultimate": self.penultimate is not None,
            "head": self.head is not None,
        }
        return frozenset({*self.extra, *(name for name, given in there.items() if given)})


@dataclass(frozen=True)
class Scores:
    """A detector's answer: ``score`` (N,) float64, higher = more likely known, always finite;
    ``label`` (N,) int64, the known class 0..C-1 the image belongs to if it is known at all."""

    score: Tensor
    label: Tensor


def require_finite(values: Tensor, what: str) -> Tensor:
    """Return ``values`` if all are finite, else name the first image that has NaN or infinity."""
    for first in range(0, len(values), _ROWS_AT_ONCE):
        finite = torch.isfinite(values[first : first + _ROWS_AT_ONCE])
        if not bool(finite.all()):
            culprit = first + int((~finite).flatten(1).any(dim=1).nonzero()[0])
            raise UserError(
                f"the {what} of image {culprit} are not finite; "
                "the training probably diverged: lower the learning rate"
            )
    return values


def require_known_labels(train: Outputs, num_classes: int) -> None:
    """Refuse training images without a known class: a detector is never shown unknown ones."""
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
