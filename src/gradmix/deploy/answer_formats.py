"""Answers as text, line by line, and as Parquet."""

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

_ROWS_A_GROUP = 50_000  # of Parquet


@dataclass(frozen=True)
class LineFormat:
    """``header`` comes once, before everything; ``lines`` makes the text of some rows."""

    header: str
    lines: Callable[[Sequence[Answer]], str]


def csv_lines(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _json_lines(rows: Sequence[Answer]) -> str:
    return "".join(json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows)


CSV = LineFormat(csv_lines([Answer._fields]), csv_lines)
JSONL = LineFormat("", _json_lines)
FORMATS = {".csv": CSV, ".jsonl": JSONL, ".parquet": JSONL}  # the last one is made of lines at the end


def format_of(out: Path) -> LineFormat:
    """The format of an answers file, by its suffix."""
    if not out.suffix:
        raise UserError(f"--out {out} needs a suffix: {', '.join(FORMATS)}")
    return FORMATS[choose("format", out.suffix.lower(), FORMATS)]


def write_parquet(lines: Path, out: Path) -> None:
    """A Parquet file of JSON lines, some rows at a time; the same bytes from the same lines."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {name: pa.float64() if name == "score" else pa.string() for name in Answer._fields}
    schema = pa.schema(list(kinds.items()))
    with open(lines, encoding="utf-8") as text, pq.ParquetWriter(out, schema) as writer:
        while some := [json.loads(line) for line in islice(text, _ROWS_A_GROUP)]:
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
