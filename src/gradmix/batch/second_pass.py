"""What can be said only when all answers are there: read a file of answers again, some rows at a time.

The rows are read from the file rather than remembered, so that memory stays bounded, and so that a prediction
that was interrupted says the same in the end as one that was not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from ..detection import UNKNOWN_NAME
from ..detection.drift import DriftTest
from ..detection.false_discoveries import find_cut
from ..recognition import Recognizer
from .answer_formats import LineFormat
from .stream import Answer

_ROWS_AT_ONCE = 4096


def read_answers(file: Path, row_format: LineFormat) -> Iterator[Answer]:
    """Yield the rows of a file of answers."""
    with open(file, encoding="utf-8", newline="") as lines:
        yield from row_format.parse_rows(lines)


def find_drift(answers: Iterator[Answer], recognizer: Recognizer) -> DriftTest:
    """Return the test for drift over all answers, in their order."""
    test = DriftTest(recognizer.decision)
    number = {name: label for label, name in enumerate(recognizer.class_names)}
    for row in answers:
        if row.nearest is not None and row.score is not None:
            test.observe((row.score,), (number[row.nearest],))
    return test


def control_rows(rows: Sequence[Answer], rate: float) -> list[Answer]:
    """Return the answers, unknown as :func:`.control_false_discoveries` says."""
    cut = _find_cut(rows, rate)
    return [_relabel(row, cut) for row in rows]


def control_file(file: Path, new: Path, row_format: LineFormat, rate: float) -> int:
    """Write the answers to ``new``, unknown as :func:`.control_false_discoveries` says; return how many are.

    Of the first pass only the number of images with each p-value is kept.
    """
    cut = _find_cut(read_answers(file, row_format), rate)
    answers, unknown = read_answers(file, row_format), 0
    with open(new, "w", encoding="utf-8", newline="") as out:
        out.write(row_format.header)
        while rows := [_relabel(row, cut) for row in islice(answers, _ROWS_AT_ONCE)]:
            unknown += sum(row.label == UNKNOWN_NAME for row in rows)
            out.write(row_format.format_rows(rows))
    return unknown


def _find_cut(rows: Iterable[Answer], rate: float) -> float:
    counts = Counter(row.p_value for row in rows if row.p_value is not None)
    values = sorted(counts)
    return find_cut(values, [counts[value] for value in values], rate)


def _relabel(row: Answer, cut: float) -> Answer:
    if row.p_value is None:
        return row
    return row._replace(label=UNKNOWN_NAME if row.p_value <= cut else row.nearest)
