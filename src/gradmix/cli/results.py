"""One evaluation as a table on stdout, a JSON file and an HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..progress import print_table

if TYPE_CHECKING:
    from ..evaluation import OpenSetResult

_SHOWN = ("closed_set_accuracy", "auroc", "tnr_at_tpr95", "oscr", "aupr_in", "aupr_out", "dtacc", "macro_f1")


def print_metrics(result: OpenSetResult) -> None:
    """Print percentages, one row per detector, the largest AUROC first; the model's own is marked."""
    from rich.table import Table

    from ..report.evaluation_page import METRIC_NAMES

    table = Table("score", *(METRIC_NAMES[m] for m in _SHOWN), "", box=None)
    own = next(iter(result.metrics))
    # The order of equal ones is that of the file, in which the model's own comes first.
    for name, values in sorted(result.metrics.items(), key=lambda row: -row[1]["auroc"]):
        shown = (f"{100 * values[m]:.2f}" if m in values else "–" for m in _SHOWN)
        table.add_row(name, *shown, "own" if name == own else "")
    print_table(table)


def write_json(path: Path, result: OpenSetResult, facts: dict[str, Any]) -> None:
    from ..files import write_text

    write_text(path, json.dumps({"metrics": result.metrics, **facts}, indent=2) + "\n")
