"""Several scores as one: ``knn+mls`` is the mean of both, each standardized."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import UserError, choose
from .detector import Detector
from .knn import KNN
from .outputs import Outputs, Scores, clamp_to_finite

_SMALLEST_DEVIATION = 1e-12


class Ensemble(Detector):
    """Mean of the scores of some detectors, each less its mean and divided by its deviation.

    score = (1/n) Σⱼ (sⱼ − μⱼ)/σⱼ, μⱼ and σⱼ of the held-out known images, so that none outweighs the others
    by its range; the label is the first detector's. Where no images were held out, μⱼ and σⱼ are those of the
    training images (of neighbours, each left out of its own), with a warning: these score higher.
    """

    uses_held_out = True

    def __init__(self, names: Sequence[str], members: Sequence[Detector]) -> None:
        if len(set(names)) < len(names):
            raise UserError(f"detector '{'+'.join(names)}' has a score twice")
        self.name = "+".join(names)
        self.names, self.members = tuple(names), tuple(members)
        self.needs = frozenset().union(*(member.needs for member in members))
        self.prefers = frozenset().union(*(member.prefers for member in members))
        self.learns = any(member.learns for member in members)
        self.needs_held_out = any(member.needs_held_out for member in members)
        self._mean: Tensor | None = None
        self._shares_index = False

    def share_index(self, index: KNN) -> None:
        """Let the neighbours among its scores be those of ``index``: neither fitted nor saved once more."""
        self.members = tuple(
            index.with_settings(**member.settings()) if isinstance(member, KNN) else member
            for member in self.members
        )
        self._shares_index = True

    def learn(self, train: Outputs, num_classes: int, held_out: Outputs | None = None) -> None:
        for member in self.members:
            if not self._is_shared(member):
                member.fit(train, num_classes, held_out=held_out)
        if held_out is None:
            warnings.warn(
                f"no images were held out: {self.name} standardizes its scores by the training images, which "
                "score higher than new ones",
                stacklevel=3,
            )
        known = [_known_scores(member, train, held_out) for member in self.members]
        self._mean = torch.stack([score.mean() for score in known])
        self._deviation = torch.stack([score.std(correction=0) for score in known])

    def class_scores(self, test: Outputs) -> Tensor:
        return self.members[0].class_scores(test)

    def score_outputs(self, test: Outputs) -> Scores:
        self.require(test)
        found = [member.score(test) for member in self.members]
        if self._mean is None:
            raise UserError(f"this {self.name} detector has seen no images; call fit first")
        return Scores(self._combine([scores.score for scores in found]), found[0].label)

    def graph(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        try:
            found = [member.graph(outputs) for member in self.members]
        except UserError:
            return super().graph(outputs)  # refused under the name of the sum
        return self._combine([score for score, _ in found]), found[0][1]

    def _combine(self, found: Sequence[Tensor]) -> Tensor:
        """Return the mean (N,) of the standardized scores, each (N,)."""
        assert self._mean is not None
        deviation = self._deviation.where(self._deviation > _SMALLEST_DEVIATION, torch.ones_like(self._mean))
        return clamp_to_finite(((torch.stack(list(found), dim=1) - self._mean) / deviation).mean(dim=1))

    def settings(self) -> dict[str, Any]:
        return {
            "members": [
                [name, member.settings()] for name, member in zip(self.names, self.members, strict=True)
            ]
        }

    def state(self) -> dict[str, Tensor]:
        if self._mean is None:
            raise UserError(f"this {self.name} detector has seen no images; call fit first")
        state = {"mean": self._mean, "deviation": self._deviation}
        for number, member in enumerate(self.members):
            if not self._is_shared(member):
                state |= {f"{number}.{key}": value for key, value in member.state().items()}
        return state

    def _is_shared(self, member: Detector) -> bool:
        return self._shares_index and isinstance(member, KNN)

    @classmethod
    def from_state(
        cls, state: Mapping[str, Tensor], settings: Mapping[str, Any], index: KNN | None = None
    ) -> Self:
        """Return the sum that ``state()`` and ``settings()`` describe; ``index``: its shared neighbours."""
        from .registry import DETECTORS  # which knows this class, too

        names: list[str] = []
        members: list[Detector] = []
        shares_index = False
        for number, (name, of_member) in enumerate(settings["members"]):
            prefix = f"{number}."
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            kind = name.partition(":")[0]
            if kind == KNN.name and not own and index is not None:
                shares_index = True
                members.append(index.with_settings(**of_member))
            else:  # files of before have the neighbours a second time
                members.append(DETECTORS[choose("detector", kind, DETECTORS)].from_state(own, of_member))
            names.append(name)
        detector = cls(names, members)
        detector._shares_index = shares_index
        detector._mean, detector._deviation = state["mean"], state["deviation"]
        return detector


def _known_scores(member: Detector, train: Outputs, held_out: Outputs | None) -> Tensor:
    if held_out is not None:
        return member.score(held_out).score
    if isinstance(member, KNN) and len(train.labels) > 1:
        return member.leave_one_out().score
    return member.score(train).score
