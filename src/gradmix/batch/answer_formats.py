"""Write answers as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..errors import UserError, choose
from .stream import Answer

_ROWS_PER_GROUP = 50_000  # of Parquet


@dataclass(frozen=True)
class LineFormat:
    """``header`` is written once, at the top; ``format_rows`` turns some rows into text."""

    header: str
    format_rows: Callable[[Sequence[Answer]], str]


def format_csv(rows: Sequence[Sequence[object]]) -> str:
    """Return the rows as lines of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _format_jsonl(rows: Sequence[Answer]) -> str:
    return "".join(json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows)


CSV = LineFormat(format_csv([Answer._fields]), format_csv)
JSONL = LineFormat("", _format_jsonl)
FORMATS = {".csv": CSV, ".jsonl": JSONL, ".parquet": JSONL}  # Parquet is converted from JSON lines at the end


def choose_format(out: Path) -> LineFormat:
    """Choose the format of an answers file by its suffix."""
    if not out.suffix:
        raise UserError(f"--out {out} needs a suffix: {', '.join(FORMATS)}")
    return FORMATS[choose("format", out.suffix.lower(), FORMATS)]


def write_parquet(lines: Path, out: Path) -> None:
    """Convert JSON lines to Parquet, some rows at a time; the same lines give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {name: pa.float64() if name == "score" else pa.string() for name in Answer._fields}
    schema = pa.schema(list(kinds.items()))
    with open(lines, encoding="utf-8") as text, pq.ParquetWriter(out, schema) as writer:
        while some := [json.loads(line) for line in islice(text, _ROWS_PER_GROUP)]:
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
