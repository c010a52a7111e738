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
    """Print percentages, one row per detector, the largest AUROC first; the model's own is marked.

    Of several unknown sets there are tables of one column each before.
    """
    from rich.table import Table

    from ..evaluation import COMPARED_METRICS, METRIC_NAMES

    own = next(iter(result.metrics))
    # The order of equal ones is that of the file, in which the model's own comes first.
    order = sorted(result.metrics, key=lambda name: -result.metrics[name]["auroc"])
    for metric in COMPARED_METRICS if result.sets else ():
        compared = Table(METRIC_NAMES[metric], *result.columns, box=None)
        by_name = result.compare_sets(metric)
        for name, values in ((name, by_name[name]) for name in order if name in by_name):
            compared.add_row(name, *(f"{100 * value:.2f}" for value in values))
        if compared.row_count:
            print_table(compared)
            print()
    shown = [metric for metric in METRIC_NAMES if metric not in _LEFT_OUT]
    heading = f"score, mean of {len(result.sets)} sets" if result.sets else "score"
    table = Table(heading, *(METRIC_NAMES[m] for m in shown), "", box=None)
    for name in order:
        found = result.metrics[name]
        row = [f"{100 * found[m]:.2f}" if m in found else "–" for m in shown]
        table.add_row(name, *row, "own" if name == own and len(order) > 1 else "")
    print_table(table)


def write_json(path: Path, result: OpenSetResult, facts: Mapping[str, Any]) -> None:
    from ..files import write_text

    sets = {"unknown sets": result.sets} if result.sets else {}
    sets |= {"unknown groups": result.summarize_groups()} if result.groups else {}
    write_text(path, json.dumps({"metrics": result.metrics, **sets, **facts}, indent=2) + "\n")
