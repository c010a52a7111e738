"""One evaluation as text, for whoever looks at it in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .metric_names import METRIC_NAMES

if TYPE_CHECKING:
    from .open_set import OpenSetResult

_SHOWN = ("closed_set_accuracy", "auroc", "tnr_at_tpr95", "oscr", "macro_f1")


def format_result(result: OpenSetResult) -> str:
    """Return what became of the images at the threshold, and a table of metrics, in per cent."""
    known, unknown, own = len(result.known.score), len(result.unknown.score), result.main
    lines = [f"OpenSetResult of {known} known and {unknown} unknown images, per cent"]
    if "known_accepted" in own:
        accepted, rejected = 100 * own["known_accepted"], 100 * own["unknown_rejected"]
        lines.append(f"known accepted {accepted:.1f}, unknown rejected {rejected:.1f}")
    names = [METRIC_NAMES[metric] for metric in _SHOWN]
    table = [("score", *names)]
    table += [(name, *_format(values)) for name, values in result.metrics.items()]
    own_name = next(iter(result.metrics))
    table += [(f"{own_name} on {name}", *_format(found[own_name])) for name, found in result.sets.items()]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        lines.append("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return "\n".join(lines)


def _format(values: dict[str, float]) -> list[str]:
    return [f"{100 * values[metric]:.2f}" if metric in values else "–" for metric in _SHOWN]
