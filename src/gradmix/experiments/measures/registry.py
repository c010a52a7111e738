"""Measures by name; each with the one number that is drawn against steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...training import Recipe
from .attention import area, check_area, maps
from .corruption import corruption
from .diversity import diversity
from .probe import probe, probe_top1
from .recognition import accuracy, closed_set, open_set, open_set_auroc, out_of_distribution
from .subject import Measured, Subject


@dataclass(frozen=True)
class Measure:
    """``at_end`` of a training; ``at_snapshots``, called ``curve``, on the way there.

    ``check`` refuses the recipes that cannot be measured, before they are trained.
    """

    at_end: Callable[[Subject], Measured]
    at_snapshots: Callable[[Subject], float]
    curve: str
    check: Callable[[Recipe], object] = lambda recipe: None


MEASURES = {
    "open_set": Measure(open_set, open_set_auroc, "AUROC"),
    "diversity": Measure(diversity, open_set_auroc, "AUROC"),
    "maps": Measure(maps, open_set_auroc, "AUROC"),
    "area": Measure(area, open_set_auroc, "AUROC", check_area),
    "closed_set": Measure(closed_set, accuracy, "accuracy"),
    "out_of_distribution": Measure(out_of_distribution, accuracy, "accuracy"),
    "corruption": Measure(corruption, accuracy, "accuracy"),
    "probe": Measure(probe, probe_top1, "top-1"),
}
