"""What all detectors have in common: two ways in (outputs or arrays), what they need, how they are saved.

:class:`FormulaDetector` is the base of those that learn nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ..errors import UserError
from .arrays import Array, read_outputs, read_training
from .outputs import GIVEN_BY, Outputs, Scores, require_finite


class Detector(ABC):
    """Learns from the training images of the known classes, then scores any others.

    A subclass writes :meth:`learn` and :meth:`score_outputs`, which are given :class:`Outputs`; its users
    call :meth:`fit` and :meth:`score`, which take arrays too. What it learned is plain tensors (``state``)
    and what it was told is JSON (``settings``), so that a model file can hold both.
    """

    name: str
    needs: frozenset[str] = frozenset({"features"})  # parts of the Outputs
    prefers: frozenset[str] = frozenset()  # parts that it uses where they are given
    learns: bool = True  # False: ``learn`` reads nothing of the training images
    uses_held_out: bool = False  # whether ``learn`` looks at known images kept out of training
    needs_held_out: bool = False  # … and cannot do without

    def fit(
        self,
        train: Outputs | Array | None = None,
        num_classes: int | Array | None = None,
        *,
        held_out: Outputs | Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> Self:
        """Learn from training images of the classes 0 … num_classes − 1; return the detector itself.

        Either ``fit(outputs, num_classes)``, or arrays: ``fit(features, labels)``, and by name whatever else
        the detector needs: ``logits``, ``penultimate``, ``head=(W, b)``, …; then there are max label + 1
        classes. ``held_out``: known images kept out of training, as Outputs or as a dict of arrays.
        """
        outputs, classes = read_training(train, num_classes, parts)
        if self.learns:
            self.require(outputs)
        kept = read_outputs(None, held_out) if isinstance(held_out, Mapping) else held_out
        if kept is None and self.needs_held_out:
            raise UserError(
                f"detector '{self.name}' learns from known images that were kept out of training, and there "
                "are none; train with holdout, or give some: gradmix calibrate RUN --images FOLDER"
            )
        self.learn(outputs, classes, kept)
        return self

    def score(self, test: Outputs | Array | None = None, **parts: Any) -> Scores:
        """Score and name images that are not among the training images.

        ``score(outputs)``, or arrays: ``score(features)``, and by name what else the detector needs.
        """
        if not isinstance(test, Outputs) or parts:
            test = read_outputs(test, parts)
        return self.score_outputs(test)

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        """Learn from training images of the classes 0 … num_classes − 1, and maybe from held-out ones."""
        raise NotImplementedError

    def score_outputs(self, test: Outputs) -> Scores:
        """Score and name images that are not among the training images."""
        raise NotImplementedError

    @abstractmethod
    def class_scores(self, test: Outputs) -> Tensor:
        """Return what is compared between the classes, (N, C): the largest is the label."""

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

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Score (N,) and label (N,) in operations that ONNX has; refused where that cannot be.

        The number of images is a symbol while this is traced: ``outputs.features.shape[0]``, not ``len``.
        """
        raise UserError(
            f"detector '{self.name}' cannot be written as ONNX; choose another: --detector knn or nno, or "
            "mls where the network has a classifier"
        )

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
        implied = {"logits", "penultimate"} if "head" in missing else {"logits"}
        givers = dict.fromkeys(GIVEN_BY[n] for n in missing if n in GIVEN_BY and n not in implied)
        who = f" ({', '.join(givers)} do)" if givers else ""
        raise UserError(
            f"detector '{self.name}' needs {', '.join(missing)}, which this network does not give{who}; "
            "use knn or nno"
        )


class FormulaDetector(Detector):
    """A score that learns nothing: a formula on the parts in ``needs`` of one image.

    The label is the argmax of the part ``named_by`` (N, K).
    """

    learns = False
    named_by: ClassVar[str] = "logits"
    _num_classes: int | None = None

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        self._num_classes = num_classes

    def class_scores(self, test: Outputs) -> Tensor:
        self.require(test)
        values = _part(test, self.named_by)
        require_classes(values, self._num_classes, self.named_by)
        return values

    def score_outputs(self, test: Outputs) -> Scores:
        values = self.class_scores(test)
        parts = {name: _part(test, name) for name in self.needs - {self.named_by}}
        return Scores(self.score_parts(parts | {self.named_by: values}), values.argmax(dim=1))

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        parts = {name: _unchecked_part(outputs, name).double() for name in self.needs}
        return self.score_parts(parts), parts[self.named_by].argmax(dim=1)

    def state(self) -> dict[str, Tensor]:
        return {} if self._num_classes is None else {"num_classes": torch.tensor([self._num_classes])}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        detector = cls(**settings)
        if "num_classes" in state:
            detector._num_classes = int(state["num_classes"])
        return detector

    @abstractmethod
    def score_parts(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Return the score (N,) of the parts in ``needs``, by name, each float64 and finite."""


def require_classes(values: Tensor, num_classes: int | None, what: str) -> None:
    """Refuse values (N, K) of another number of classes than the detector was fitted to."""
    if num_classes is not None and values.shape[1] != num_classes:
        raise UserError(f"{what} of {values.shape[1]} classes, but {num_classes} are known")


def require_positive(name: str, temperature: float) -> float:
    """Return the temperature of the detector called ``name``, or raise if there is no such softmax."""
    if not 0 < temperature < float("inf"):
        raise UserError(f"{name} needs a positive temperature, not {temperature}")
    return temperature


def _part(outputs: Outputs, name: str) -> Tensor:
    return require_finite(_unchecked_part(outputs, name), name).double()


def _unchecked_part(outputs: Outputs, name: str) -> Tensor:
    values = outputs.logits if name == "logits" else outputs.extra[name]
    assert values is not None
    return values
