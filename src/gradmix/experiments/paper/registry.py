"""Every experiment by the name one types."""

from __future__ import annotations

from ...errors import choose
from ..declaration import Experiment
from .ablation_figure import FIG_LAYERS, FIG_MIXERS
from .ablations import ABLATIONS
from .attribution_figures import FIG_AREA, FIG_MAPS
from .self_supervised import FIG_SSL, TABLE6
from .table1 import TABLE1
from .table2 import TABLE2
from .whole_sets import TABLE3, TABLE4, TABLE5

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        TABLE1,
        TABLE2,
        FIG_MIXERS,
        FIG_LAYERS,
        TABLE3,
        TABLE4,
        TABLE5,
        FIG_SSL,
        TABLE6,
        FIG_MAPS,
        FIG_AREA,
        *ABLATIONS,
    )
}


def get_experiment(name: str) -> Experiment:
    """Return the experiment called ``name``; the error for a misspelt name suggests the nearest.

    >>> get_experiment("table2").paper_item
    'Table 2'
    """
    return EXPERIMENTS[choose("experiment", name, EXPERIMENTS)]
