"""Measures by name; each with the one number that is drawn against steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...training import Recipe
from .attention import check_area, measure_area, measure_maps
from .corruption import measure_corruption
from .diversity import measure_diversity
from .measure_input import Measured, MeasureInput
from .probe import measure_probe, measure_probe_top1
from .recognition import (
    measure_accuracy,
    measure_auroc,
    measure_closed_set,
    measure_open_set,
    measure_out_of_distribution,
)


@dataclass(frozen=True)
class Measure:
    """``at_end`` of a training; ``at_snapshots``, called ``curve``, on the way there.

    ``check`` refuses the recipes that cannot be measured, before they are trained.
    """

    at_end: Callable[[MeasureInput], Measured]
    at_snapshots: Callable[[MeasureInput], float]
    curve: str
    check: Callable[[Recipe], object] = lambda recipe: None


MEASURES = {
    "open_set": Measure(measure_open_set, measure_auroc, "AUROC"),
    "diversity": Measure(measure_diversity, measure_auroc, "AUROC"),
    "maps": Measure(measure_maps, measure_auroc, "AUROC"),
    "area": Measure(measure_area, measure_auroc, "AUROC", check_area),
    "closed_set": Measure(measure_closed_set, measure_accuracy, "accuracy"),
    "out_of_distribution": Measure(measure_out_of_distribution, measure_accuracy, "accuracy"),
    "corruption": Measure(measure_corruption, measure_accuracy, "accuracy"),
    "probe": Measure(measure_probe, measure_probe_top1, "top-1"),
}
