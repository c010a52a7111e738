"""One evaluation as tables on stdout and a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..progress import print_table

if TYPE_CHECKING:
    from ..evaluation import OpenSetResult

_LEFT_OUT = ("detection_accuracy",)  # in evaluation.json only


def print_metrics(result: OpenSetResult) -> None:
    """Print percentages, one row per detector; of several unknown sets first one column each."""
    from rich.table import Table

    from ..evaluation import COMPARED_METRICS, METRIC_NAMES

    for metric in COMPARED_METRICS if result.sets else ():
        compared = Table(METRIC_NAMES[metric], *result.sets, "mean", box=None)
        for name, values in result.compare_sets(metric).items():
            compared.add_row(name, *(f"{100 * value:.2f}" for value in values))
        if compared.row_count:
            print_table(compared)
            print()
    shown = [metric for metric in METRIC_NAMES if metric not in _LEFT_OUT]
    heading = f"score, mean of {len(result.sets)} sets" if result.sets else "score"
    table = Table(heading, *(METRIC_NAMES[m] for m in shown), box=None)
    for name, found in result.metrics.items():
        table.add_row(name, *(f"{100 * found[m]:.2f}" if m in found else "–" for m in shown))
    print_table(table)


def write_json(path: Path, result: OpenSetResult, facts: Mapping[str, Any]) -> None:
    from ..files import write_text

    sets = {"unknown sets": result.sets} if result.sets else {}
    write_text(path, json.dumps({"metrics": result.metrics, **sets, **facts}, indent=2) + "\n")
