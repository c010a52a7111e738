"""Measures by name; each with the one number that is drawn against steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .attention import area, maps
from .corruption import corruption
from .diversity import diversity
from .probe import probe, probe_top1
from .recognition import accuracy, closed_set, open_set, open_set_auroc, out_of_distribution
from .subject import Measured, Subject


@dataclass(frozen=True)
class Measure:
    """``at_end`` of a training; ``at_snapshots``, called ``curve``, on the way there."""

    at_end: Callable[[Subject], Measured]
    at_snapshots: Callable[[Subject], float]
    curve: str


MEASURES = {
    "open_set": Measure(open_set, open_set_auroc, "AUROC"),
    "diversity": Measure(diversity, open_set_auroc, "AUROC"),
    "maps": Measure(maps, open_set_auroc, "AUROC"),
    "area": Measure(area, open_set_auroc, "AUROC"),
    "closed_set": Measure(closed_set, accuracy, "accuracy"),
    "out_of_distribution": Measure(out_of_distribution, accuracy, "accuracy"),
    "corruption": Measure(corruption, accuracy, "accuracy"),
    "probe": Measure(probe, probe_top1, "top-1"),
}
