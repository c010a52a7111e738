"""Predict any number of images into one file, and resume after interruptions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..detection import UNKNOWN_NAME
from ..errors import UserError
from ..progress import progress
from ..recognition import Recognizer
from ..recognition.model_file import identity, load, model_path
from ..recognition.model_format import GivenModule
from .answer_formats import choose_format, write_parquet
from .part_file import PartFile
from .second_pass import control_file, find_drift, read_answers
from .stream import Answer, Inputs, decide_at, describe_limit, predict_batches

FORMAT = "2"  # of the rows; a part of another format is not resumed
BatchPredictor = Callable[[Recognizer, Inputs, int], Iterator[list[Answer]]]


@dataclass(frozen=True)
class Summary:
    """The number of rows in the file by kind; ``resumed`` is how many an earlier call had written.

    ``drift``: whether the accepted images still look like the known ones, in one line; ``note``: a warning.
    """

    images: int
    unknown: int
    unreadable: int
    resumed: int
    drift: str = ""
    note: str = ""


def predict_to_file(
    model: str | Path,
    inputs: Inputs,
    out: Path,
    *,
    force: bool = False,
    predictor: BatchPredictor = predict_batches,
    detector: str = "",
    backbone: GivenModule | str | None = None,
    false_reject: float | None = None,
    fdr: float | None = None,
) -> Summary:
    """Write one row per input, in order, to ``out``: .csv, .jsonl or .parquet.

    Rows go to ``out``.part, which is renamed when it is complete. Called again after an interruption, it
    resumes where it stopped, and ends in the same bytes. Another model or list of images is then refused;
    ``force`` starts over. ``predictor``: this process (default) or a cluster (:func:`make_ray_predictor`).
    ``detector``: decide by another score than the model's own. ``backbone`` as in :func:`gradmix.load`.
    ``false_reject``: at another rate than the model's. ``fdr``: call so many unknown that at most this share
    of them are known, on average over all rows; their labels are written when all p-values are there.
    """
    row_format, parquet = choose_format(out), out.suffix.lower() == ".parquet"
    recognizer, digest = _load_and_hash(model, backbone)
    if detector:
        recognizer = recognizer.with_detector(detector)
    recognizer = decide_at(recognizer, false_reject, fdr)
    about = {"model": digest, "list of images": inputs.digest, "version": FORMAT}
    about |= {"detector": detector} if detector else {}
    about |= {} if false_reject is None else {"false_reject": str(false_reject)}
    about |= {} if fdr is None else {"fdr": str(fdr)}
    with PartFile(out, about, force) as part, progress("naming images", inputs.count) as advance:
        resumed = part.rows
        advance(resumed)
        if not resumed:
            part.append(row_format.header, {"rows": 0})
        for rows in predictor(recognizer, inputs, resumed):
            part.append(row_format.format_rows(rows), _count(rows))
            advance(len(rows))
        part.sync()
        drift = find_drift(read_answers(part.part, row_format), recognizer).describe()
        unknown = [part.counts.get("unknown", 0)]

        def convert(lines: Path, new: Path) -> None:
            """Write the labels, then the format."""
            labelled = new.with_name(new.name + ".lines") if parquet else new
            if fdr is not None:
                unknown[0] = control_file(lines, labelled, row_format, fdr)
                lines = labelled
            if parquet:
                write_parquet(lines, new)
                labelled.unlink(missing_ok=True)

        part.finish(convert if fdr is not None or parquet else None)
        counts = part.counts
    note = describe_limit(recognizer, fdr)
    return Summary(counts["rows"], unknown[0], counts.get("unreadable", 0), resumed, drift, note)


def _count(rows: list[Answer]) -> dict[str, int]:
    return {
        "rows": len(rows),
        "unknown": sum(row.label == UNKNOWN_NAME for row in rows),
        "unreadable": sum(row.error is not None for row in rows),
    }


def _load_and_hash(model: str | Path, backbone: GivenModule | str | None) -> tuple[Recognizer, str]:
    """Return the model, and the hash of the file that it was read from."""
    file = model_path(model)
    before = identity(file)
    recognizer, digest = load(file, backbone), _hash_file(file)
    if identity(file) != before:
        raise UserError(f"{file} is being changed; run this again when that is done")
    return recognizer, digest


def _hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
