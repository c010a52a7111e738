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
    """One row: recipe fields over the bench's.

    ``recipe``: the published recipes of the row's method, ``paper/<recipe>-<bench>``; that of cifar10 stands
    in for those that are missing. ``needs``: a recipe field that only the user can give; without it the row
    stays empty. ``length``: of the training, where that of the other rows is 1, for equal arithmetic of rows
    whose steps cost differently. ``beyond_paper``: only run where a preset, or the user, names it.

    ``code``: of the user's own rows, 16 hex digits of the file behind it.
    """

    name: str
    label: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    recipe: str = ""
    needs: str = ""
    length: float = 1.0
    beyond_paper: bool = False
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
class CpuLimits:
    """What a preset runs of an experiment, beside smaller networks and images. None: all.

    ``trials``: the first so many, or the numbers of those that are run.
    """

    benches: tuple[str, ...] | None = None
    arms: tuple[str, ...] | None = None
    trials: int | tuple[int, ...] = 3


@dataclass(frozen=True)
class Experiment:
    """A table or figure; ``paper_item`` says which in the paper.

    ``fields`` override every recipe; ``out`` are foreign data sets to distinguish from the known one.

    ``figures`` names what is drawn besides AUROC against steps: bars, ranks, corruptions, area, maps.
    ``cpu``, ``decide``: what these presets run of it. ``reference``: the row to which the others' differences
    are taken, trial by trial.
    """

    name: str
    title: str
    paper_item: str
    measure: str
    columns: tuple[Column, ...]
    benches: tuple[Bench, ...]
    arms: tuple[Arm, ...]
    trials: int = 5
    fields: Mapping[str, Any] = field(default_factory=dict)
    out: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    cpu: CpuLimits = CpuLimits()
    decide: CpuLimits | None = None
    reference: str = ""
    notes: tuple[str, ...] = ()

    def limits(self, preset: str) -> CpuLimits | None:
        """Return what a preset runs of it; None: all that is declared."""
        if preset == "decide":
            return self.decide or self.cpu
        return self.cpu if preset == "cpu" else None
