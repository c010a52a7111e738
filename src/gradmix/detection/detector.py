"""What all detectors have in common: two ways in (outputs or arrays), what they need, how they are saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from torch import Tensor

from ..errors import UserError
from .arrays import Array, read_outputs, read_training
from .outputs import GIVEN_BY, Outputs, Scores


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
        implied = {"logits", "penultimate"} if "head" in missing else {"logits"}
        givers = dict.fromkeys(GIVEN_BY[n] for n in missing if n in GIVEN_BY and n not in implied)
        who = f" ({', '.join(givers)} do)" if givers else ""
        raise UserError(
            f"detector '{self.name}' needs {', '.join(missing)}, which this network does not give{who}; "
            "use knn or nno"
        )
