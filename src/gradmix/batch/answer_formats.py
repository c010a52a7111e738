"""Write answers as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..errors import UserError, choose
from .stream import Answer

_ROWS_PER_GROUP = 50_000  # of Parquet


@dataclass(frozen=True)
class LineFormat:
    """``header`` is written once, at the top; ``format_rows`` makes text of rows, ``parse_rows`` reads it."""

    header: str
    format_rows: Callable[[Sequence[Answer]], str]
    parse_rows: Callable[[Iterable[str]], Iterator[Answer]]


def format_csv(rows: Sequence[Sequence[object]]) -> str:
    """Return the rows as lines of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _format_jsonl(rows: Sequence[Answer]) -> str:
    return "".join(json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows)


def _parse_csv(lines: Iterable[str]) -> Iterator[Answer]:
    rows = csv.reader(lines)
    next(rows, None)  # the header
    for file, label, nearest, score, error, p_value in rows:
        numbers = (float(text) if text else None for text in (score, p_value))
        yield Answer(file, label or None, nearest or None, next(numbers), error or None, next(numbers))


def _parse_jsonl(lines: Iterable[str]) -> Iterator[Answer]:
    return (Answer(**json.loads(line)) for line in lines)


CSV = LineFormat(format_csv([Answer._fields]), format_csv, _parse_csv)
JSONL = LineFormat("", _format_jsonl, _parse_jsonl)
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

    numbers = ("score", "p_value")
    kinds = {name: pa.float64() if name in numbers else pa.string() for name in Answer._fields}
    schema = pa.schema(list(kinds.items()))
    with open(lines, encoding="utf-8") as text, pq.ParquetWriter(out, schema) as writer:
        while some := [json.loads(line) for line in islice(text, _ROWS_PER_GROUP)]:
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
