"""Write tables as text, and format the values of cells for every kind of table."""

from __future__ import annotations

import math
from collections.abc import Sequence

Cell = str | int | float | None

NOT_MEASURED = "–"


def format_cell(value: Cell) -> str:
    """Write one value; what is missing or not a number becomes a dash.

    >>> [format_cell(v) for v in ("cat", 3, 0.98765, 12.0, float("nan"), None)]
    ['cat', '3', '0.988', '12.0', '–', '–']
    """
    if value is None:
        return NOT_MEASURED
    if isinstance(value, float):
        return f"{value:.{3 if abs(value) < 10 else 1}f}" if math.isfinite(value) else NOT_MEASURED
    return str(value)


def format_percent(share: float) -> str:
    """Write a share of 1 as a percentage.

    >>> format_percent(0.93817), format_percent(1.0), format_percent(float("nan"))
    ('93.8', '100', '–')
    """
    if not math.isfinite(share):
        return NOT_MEASURED
    # 99.97 % must not be rounded up to look perfect.
    return "100" if share >= 1.0 else f"{min(100 * share, 99.9):.1f}"


def is_number(value: Cell) -> bool:
    """Return whether a cell belongs to a right-aligned column (an empty cell does)."""
    return value is None or isinstance(value, int | float)


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a pipe table; columns of numbers are aligned right.

    >>> print(markdown_table(["class", "AUROC"], [["cat", 0.9], ["a|b", None]]))
    | class | AUROC |
    |-------|------:|
    | cat   | 0.900 |
    | a\\|b  |     – |
    """
    numeric = [bool(rows) and all(is_number(row[i]) for row in rows) for i in range(len(headers))]
    cells = [[_escape(format_cell(value)) for value in row] for row in [list(headers), *rows]]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(headers))]

    def line(row: Sequence[str]) -> str:
        padded = [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True)]
        return "| " + " | ".join(padded) + " |"

    rule = (
        "|"
        + "|".join("-" * (w + 1) + (":" if n else "-") for w, n in zip(widths, numeric, strict=True))
        + "|"
    )
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
