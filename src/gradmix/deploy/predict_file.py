"""Answers for any number of images into one file, however often the work is interrupted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..progress import progress
from ..recognition import Recognizer
from ..recognition.class_names import UNKNOWN_NAME
from ..recognition.model_file import identity, load, model_path
from .answer_formats import format_of, write_parquet
from .inputs import Inputs
from .part_file import PartFile
from .stream import Answer, answers

FORMAT = "1"  # of the rows: another one must not be mixed into a file that is half done
Answering = Callable[[Recognizer, Inputs, int], Iterator[list[Answer]]]


@dataclass(frozen=True)
class Summary:
    """What is in the file; ``resumed``: how many rows of it were there from before."""

    images: int
    unknown: int
    unreadable: int
    resumed: int


def predict_to_file(
    model: str | Path, inputs: Inputs, out: Path, *, force: bool = False, answering: Answering = answers
) -> Summary:
    """One row an input, in order, to ``out``: .csv, .jsonl or .parquet.

    Rows go to ``out``.part, which gets its name when it is whole. Called again after whatever ended it, it
    goes on where it stopped, and ends in the same bytes. Another model or list of images is then refused;
    ``force`` starts over. ``answering`` is who answers: this process, or a cluster (:mod:`.ray_predict`).
    """
    kind = format_of(out)
    recognizer, digest = _loaded(model)
    about = {"model": digest, "list of images": inputs.digest, "version": FORMAT}
    with PartFile(out, about, force) as part, progress("naming images", inputs.count) as advance:
        resumed = part.rows
        advance(resumed)
        if not resumed:
            part.append(kind.header, {"rows": 0})
        for rows in answering(recognizer, inputs, resumed):
            part.append(kind.lines(rows), _counts(rows))
            advance(len(rows))
        part.finish(write_parquet if out.suffix.lower() == ".parquet" else None)
        counts = part.counts
    return Summary(counts["rows"], counts.get("unknown", 0), counts.get("unreadable", 0), resumed)


def _counts(rows: list[Answer]) -> dict[str, int]:
    return {
        "rows": len(rows),
        "unknown": sum(row.label == UNKNOWN_NAME for row in rows),
        "unreadable": sum(row.error is not None for row in rows),
    }


def _loaded(model: str | Path) -> tuple[Recognizer, str]:
    """The model, and the hash of the very file that it was read from."""
    file = model_path(model)
    before = identity(file)
    recognizer, digest = load(file), _file_hash(file)
    if identity(file) != before:
        raise UserError(f"{file} is being changed; run this again when that is done")
    return recognizer, digest


def _file_hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
