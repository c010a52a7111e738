"""What an experiment is: data × arms × trials × a measure, with the paper's numbers beside it.

Everything here is plain data. No declaration has a loop of its own, and reading one imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class OpenSplit:
    """Known and unknown classes of a protocol; trial i is the protocol's i-th split.

    ``only_trial``: every trial takes this one split, and differs from the others in its seed alone.
    """

    protocol: str
    only_trial: int | None = None


@dataclass(frozen=True)
class WholeSet:
    """A data set with its own test split; trials differ in their seed.

    ``first``: only the first so many classes; ``known_of``: only those known in split 0 of a protocol.
    """

    source: str
    first: int | None = None
    known_of: str | None = None


Data = OpenSplit | WholeSet


@dataclass(frozen=True)
class Bench:
    """One thing to train and test on: data, and the recipe that the paper has for it.

    ``small`` is the data that the preset ``cpu`` takes instead, ``small_label`` what to call the bench where
    it is not the paper's.
    """

    name: str
    label: str
    recipe: str
    data: Data
    fields: Mapping[str, Any] = field(default_factory=dict)
    small: Data | None = None
    small_label: str = ""


@dataclass(frozen=True)
class Arm:
    """One row: recipe fields over the bench's. Not ``implemented``: only the paper's numbers are there.

    ``needs``: a recipe field that only the user can give; without it the row stays empty. ``code``: of the
    user's own rows, 16 hex digits of the file behind it.
    """

    name: str
    label: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    implemented: bool = True
    needs: str = ""
    code: str = ""

    @property
    def is_own(self) -> bool:
        return bool(self.code)


@dataclass(frozen=True)
class Column:
    """A number of each trial: ``metric`` is its key; columns of one ``group`` make one table."""

    metric: str
    label: str
    group: str = ""
    percent: bool = True
    higher_is_better: bool = True


@dataclass(frozen=True)
class Cut:
    """What the preset ``cpu`` leaves out beyond the size of network and images. None: nothing."""

    benches: tuple[str, ...] | None = None
    arms: tuple[str, ...] | None = None
    trials: int = 3


@dataclass(frozen=True)
class Experiment:
    """A table or figure. ``fields`` go over every recipe; ``out`` are data sets to tell from the known one.

    ``figures`` names what is drawn besides AUROC against steps: bars, corruptions, area, maps.
    """

    name: str
    title: str
    place: str
    measure: str
    columns: tuple[Column, ...]
    benches: tuple[Bench, ...]
    arms: tuple[Arm, ...]
    trials: int = 5
    fields: Mapping[str, Any] = field(default_factory=dict)
    out: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    cpu: Cut = Cut()
    notes: tuple[str, ...] = ()


def compared_only(*labels: str) -> tuple[Arm, ...]:
    """Rows of methods that are not implemented here yet: the paper's figures stand alone.

    >>> compared_only("ARPL-CS")[0].name
    'arpl-cs'
    """
    return tuple(Arm(label.lower().replace(" ", "-"), label, implemented=False) for label in labels)
