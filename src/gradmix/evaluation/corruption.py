"""What corruption costs: the drop of accuracy by type and severity, and its means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.corruptions import CORRUPTIONS, SEVERITIES
from ..errors import UserError, choose
from ..progress import progress


def accuracy_drop(clean: float, accuracy: Tensor) -> Tensor:
    """Return D_{c,s} = A_clean − A_{c,s}; ``accuracy`` (types, severities) -> the same shape."""
    return clean - accuracy


def drop_by_type(drop: Tensor) -> Tensor:
    """Return D̄_c = (1/S) Σ_s D_{c,s}; (types, severities) -> (types,)."""
    return drop.mean(1)


def drop_by_severity(drop: Tensor) -> Tensor:
    """Return D̄_s = (1/C) Σ_c D_{c,s}; (types, severities) -> (severities,)."""
    return drop.mean(0)


@dataclass(frozen=True)
class CorruptionResult:
    """Accuracies as shares of 1: ``clean``, and of each type one number a severity, from 1 on."""

    clean: float
    accuracy: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        if not self.accuracy:
            raise UserError("no corruption was measured; name at least one")
        many = len(next(iter(self.accuracy.values())))
        for name, row in self.accuracy.items():
            if len(row) != many or not many:
                raise UserError(f"'{name}' has {len(row)} accuracies, others {many}; give one per severity")

    @property
    def drop(self) -> Tensor:
        """(types, severities) float64, in the order of ``accuracy``."""
        table = torch.tensor([list(row) for row in self.accuracy.values()], dtype=torch.float64)
        return accuracy_drop(self.clean, table)

    @property
    def by_type(self) -> dict[str, float]:
        """The mean drop of each type over the severities."""
        return dict(zip(self.accuracy, drop_by_type(self.drop).tolist(), strict=True))

    @property
    def by_severity(self) -> list[float]:
        """The mean drop at each severity over the types."""
        return [float(drop) for drop in drop_by_severity(self.drop)]


def evaluate_corruption(
    clean: float,
    accuracy_of: Callable[[str, int], float],
    names: Iterable[str] = tuple(CORRUPTIONS),
) -> CorruptionResult:
    """Measure ``accuracy_of`` images under each corruption at each severity, beside that on ``clean`` ones.

    It is asked for one (name, severity) after the other, so that one corrupted set at a time is in memory.
    """
    wanted = [choose("corruption", name, CORRUPTIONS) for name in names]  # now, not hours later
    accuracy: dict[str, list[float]] = {name: [] for name in wanted}
    with progress("corruptions", len(wanted) * len(SEVERITIES)) as advance:
        for name, row in accuracy.items():
            for severity in SEVERITIES:
                row.append(accuracy_of(name, severity))
                advance(note=f"{name} {severity}")
    return CorruptionResult(clean, accuracy)
