"""What goes into a detector and what comes out: one extraction feeds every one of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

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
}


@dataclass(frozen=True)
class Outputs:
    """What the network says about N images.

    ``features``: (N, d), not necessarily of unit length; ``labels``: (N,) int64, -1 where unknown;
    ``logits``: (N, C), for networks that have a head; ``extra``: what else the head gives, (N, …) by name.
    """

    features: Tensor
    labels: Tensor
    logits: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.features.ndim != 2:
            raise UserError(f"features must be (images, dimensions), not {tuple(self.features.shape)}")
        if self.labels.shape != (len(self.features),):
            raise UserError(
                f"{len(self.features)} features but labels of shape {tuple(self.labels.shape)}: "
                "one label per image is needed (-1 where unknown)"
            )
        if self.logits is not None and (self.logits.ndim != 2 or len(self.logits) != len(self.features)):
            raise UserError(
                f"{len(self.features)} features but logits of shape {tuple(self.logits.shape)}: "
                "one row per image is needed"
            )
        for name, values in self.extra.items():
            if len(values) != len(self.features):
                raise UserError(f"{len(self.features)} features but {len(values)} rows of '{name}'")

    def select(self, rows: Tensor) -> Outputs:
        """Return those of some images: ``rows`` are numbers or a boolean mask."""
        logits = None if self.logits is None else self.logits[rows]
        extra = {name: values[rows] for name, values in self.extra.items()}
        return Outputs(self.features[rows], self.labels[rows], logits, extra)

    @property
    def parts(self) -> frozenset[str]:
        """Return the names of what there is: features, logits, and the names of the extra outputs."""
        return frozenset({"features", *self.extra, *([] if self.logits is None else ["logits"])})


@dataclass(frozen=True)
class Scores:
    """A detector's answer: ``score`` (N,) float64, higher = more likely known, always finite;
    ``label`` (N,) int64, the known class 0..C-1 the image belongs to if it is known at all."""

    score: Tensor
    label: Tensor


class Detector(ABC):
    """Learns from the training images of the known classes, then scores any others.

    What it learned is plain tensors (``state``) and what it was told is JSON (``settings``), so that a model
    file can hold both.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset({"features"})  # parts of the Outputs
    learns: ClassVar[bool] = True  # False: ``fit`` reads nothing of the training images

    @abstractmethod
    def fit(self, train: Outputs, num_classes: int) -> Self:
        """Learn from training images of the classes 0 … num_classes − 1; return the detector itself."""

    @abstractmethod
    def class_scores(self, test: Outputs) -> Tensor:
        """Return what is compared between the classes, (N, C): the largest is the label."""

    @abstractmethod
    def score(self, test: Outputs) -> Scores:
        """Score and name images that are not among the training images."""

    def settings(self) -> dict[str, Any]:
        """Return what ``__init__`` was given, as JSON can hold it."""
        return {}

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return what ``fit`` learned, as plain tensors."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        """Return the detector that ``state()`` and ``settings()`` describe; it scores to the same bits."""

    def graph(self, features: Tensor, logits: Tensor | None) -> tuple[Tensor, Tensor]:
        """Score (N,) and label (N,) in operations that ONNX has; refused where that cannot be."""
        raise UserError(f"detector '{self.name}' cannot be written as ONNX; choose another with --detector")

    def require(self, outputs: Outputs) -> None:
        """Raise UserError if the network does not give what this detector needs."""
        missing = sorted(self.needs - outputs.parts)
        if not missing:
            return
        if missing == ["logits"]:
            raise UserError(
                f"detector '{self.name}' needs logits, and this network has no classifier "
                f"({GIVEN_BY['logits']} have one); use knn or nno"
            )
        givers = dict.fromkeys(GIVEN_BY[name] for name in missing if name in GIVEN_BY and name != "logits")
        who = f" ({', '.join(givers)} do)" if givers else ""
        raise UserError(
            f"detector '{self.name}' needs {', '.join(missing)}, which this network does not give{who}; "
            "use knn or nno"
        )


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
