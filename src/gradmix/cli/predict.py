"""Name images, or call them unknown.

  gradmix predict runs/photos new/                       # a folder, searched through
  gradmix predict runs/photos a.jpg b.jpg --format csv > answers.csv
  gradmix predict runs/photos big_folder/ --out answers.csv        # or .jsonl, .parquet
  find photos/ -name '*.jpg' | gradmix predict runs/photos --list - --out answers.csv
  gradmix predict runs/photos big_folder/ --out answers.csv --ray  # on a Ray cluster
  gradmix predict runs/photos new/ --detector energy               # another score, its own threshold
  gradmix predict runs/photos new/ --false-reject 0.01             # reject fewer; the model stays as it is
  gradmix predict runs/photos new/ --fdr 0.1                       # of the unknown at most 10 % are known

One row per image: file, label (or 'unknown'), the most similar known class, the score (higher = more likely
known), and the p-value: the share of known images that look as unusual. Unknown is what is at most the
model's rate of false rejects, or --false-reject. With --fdr so many are called unknown that of these at most
the given share are known, on average over the images given together (Benjamini and Hochberg 1995).

With --out the file may have any number of rows, one per input: an unreadable image has the reason in the
column 'error', and nothing else. Rows go to answers.csv.part, which becomes answers.csv when it is complete.
After an interruption, the same command resumes where it stopped, and ends in the same bytes. In the end a
line says whether the accepted images still look like the known ones (drift).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..progress import no_progress, print_table, progress
from . import add_backbone_arguments, read_backbone

if TYPE_CHECKING:
    from ..batch import Answer, Inputs
    from ..recognition import Recognizer

_COLUMNS = ("file", "label", "nearest", "score", "p_value")
_STREAMED = ("csv", "jsonl")  # the formats that need not see the last row to print the first
_LOCAL = "local"  # --ray without an address


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="a run folder, its model.safetensors, or hf://owner/name"
    )
    images = parser.add_argument(
        "images", nargs="+", type=Path, metavar="IMAGES", help="image files, folders, .zip and .tar archives"
    )

    class List(argparse.Action):
        """Replace IMAGES. (With nargs="*" argparse would take none before the first option.)"""

        def __call__(self, parser: object, found: argparse.Namespace, values: object, *_: object) -> None:
            found.list, images.required = values, False

    parser.add_argument(
        "--list", action=List, metavar="FILE", help="… or a file that names one image per line; - is stdin"
    )
    parser.add_argument("--detector", default="", help="decide by another score than the model's own")
    parser.add_argument(
        "--false-reject",
        type=float,
        metavar="RATE",
        help="reject another share of known images",
    )
    parser.add_argument(
        "--fdr", type=float, metavar="RATE", help="or: of the unknown ones, at most this share is known"
    )
    parser.add_argument("--format", choices=("csv", "json", "jsonl", "table"), help="default: table")
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write there, resumably: .csv, .jsonl or .parquet"
    )
    parser.add_argument("--force", action="store_true", help="with --out: start over, replace what is there")
    parser.add_argument(
        "--ray",
        nargs="?",
        const=_LOCAL,
        metavar="ADDRESS",
        help="with --out: on the Ray cluster at ADDRESS ('auto': the one this machine is in; none: here)",
    )
    add_backbone_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.list is not None and args.images:
        raise UserError("give IMAGES or --list, not both")
    if args.out is None:
        for given, option in ((args.force, "--force"), (args.ray, "--ray")):
            if given:
                raise UserError(f"{option} goes with --out FILE")
        return _print_answers(args)
    if args.format:
        raise UserError("--format is of what is printed; with --out the suffix says it")
    if args.skip_bad:
        raise UserError("--skip-bad does not go with --out, where every image has a row; drop it")
    return _write_file(args)


def _read_inputs(args: argparse.Namespace) -> Inputs:
    from ..batch import Inputs

    if args.list is None:
        return Inputs.from_paths(args.images)
    if args.list == "-":
        return Inputs.from_lines(sys.stdin.buffer, "stdin")
    try:
        with open(args.list, "rb") as lines:
            return Inputs.from_lines(lines, args.list)
    except OSError as error:
        raise UserError(f"--list {args.list or repr('')} cannot be read: {error.strerror}") from error


def _write_file(args: argparse.Namespace) -> int:
    from ..batch import BatchPredictor, make_ray_predictor, predict_batches, predict_to_file

    predictor: BatchPredictor = predict_batches
    if args.ray:
        predictor = make_ray_predictor(None if args.ray == _LOCAL else args.ray)
    try:
        done = predict_to_file(
            args.run,
            _read_inputs(args),
            args.out,
            force=args.force,
            predictor=predictor,
            detector=args.detector,
            backbone=read_backbone(args),
            false_reject=args.false_reject,
            fdr=args.fdr,
        )
    except KeyboardInterrupt:
        print(f"what is done is in {args.out}.part; the same command goes on from there", file=sys.stderr)
        raise
    before = f", {done.resumed} of them done before" if done.resumed else ""
    print(
        f"{done.images} images{before}: {done.unknown} unknown, {done.unreadable} unreadable", file=sys.stderr
    )
    for line in filter(None, (done.drift, f"note: {done.note}" if done.note else "")):
        print(line, file=sys.stderr)
    print(args.out)
    return 0


def _print_answers(args: argparse.Namespace) -> int:
    """Print csv and jsonl batch by batch; a table or one JSON array at the end."""
    from ..batch import format_csv
    from ..batch.stream import decide_at, describe_limit
    from ..recognition.model_file import load

    out = sys.stdout  # taken now: while a bar is drawn, sys.stdout writes to stderr
    recognizer = load(args.run, read_backbone(args))
    if args.detector:
        recognizer = recognizer.with_detector(args.detector)
    recognizer = decide_at(recognizer, args.false_reject, args.fdr)
    batches = _predict_readable(recognizer, _read_inputs(args), args.skip_bad, args.format in _STREAMED)
    if args.fdr is not None:
        batches = _control_false_discoveries(batches, args.fdr)
    if args.format == "csv":
        for number, rows in enumerate(batches):
            header = [] if number else [_COLUMNS]
            out.write(format_csv([*header, *([*_to_dict(row).values()] for row in rows)]))
    elif args.format == "jsonl":
        for rows in batches:
            out.writelines(json.dumps(_to_dict(row), ensure_ascii=False) + "\n" for row in rows)
    else:
        all_rows = [row for rows in batches for row in rows]
        if args.format == "json":
            print(json.dumps([_to_dict(row) for row in all_rows], indent=1, ensure_ascii=False))
        else:
            _print_table(all_rows)
    if note := describe_limit(recognizer, args.fdr):
        print(f"note: {note}", file=sys.stderr)
    return 0


def _predict_readable(
    recognizer: Recognizer, inputs: Inputs, skip_bad: bool, streamed: bool
) -> Iterator[list[Answer]]:
    """Yield answers for the readable images; refuse the first unreadable one, or count them at the end."""
    from ..batch import predict_batches

    number, first = 0, ""
    silent = streamed and sys.stdout.isatty()  # a bar would be drawn between the rows
    with no_progress() if silent else progress("naming images", inputs.count) as advance:
        for rows in predict_batches(recognizer, inputs):
            for row in rows:
                if row.error is not None:
                    first = first or f"{row.file} {row.error}"
                    number += 1
            if number and not skip_bad:
                more = f" (and {number - 1} more)" if number > 1 else ""
                raise UserError(f"{first}{more}; --skip-bad goes on without, --out FILE.csv gives it a row")
            yield [row for row in rows if row.error is None]
            advance(len(rows))
    if number:
        print(f"left out {number} unreadable images; the first: {first}", file=sys.stderr)


def _to_dict(row: Answer) -> dict[str, object]:
    return {name: getattr(row, name) for name in _COLUMNS}


def _control_false_discoveries(batches: Iterator[list[Answer]], rate: float) -> Iterator[list[Answer]]:
    """Yield all rows at once, for which of them are unknown depends on all."""
    from ..batch.second_pass import control_rows

    yield control_rows([row for rows in batches for row in rows], rate)


def _print_table(rows: list[Answer]) -> None:
    from rich.table import Table
    from rich.text import Text  # file names may hold [brackets], which plain cells take for markup

    from ..detection import UNKNOWN_NAME

    table = Table(*_COLUMNS, box=None)
    table.columns[0].overflow = "fold"  # a path must stay whole
    for row in rows:
        style = "dim" if row.label == UNKNOWN_NAME else ""
        cells = (row.file, str(row.label), str(row.nearest), f"{row.score:.4f}", _format_p(row.p_value))
        table.add_row(*map(Text, cells), style=style)
    print_table(table)


def _format_p(p_value: float | None) -> str:
    """Return the p-value with two digits that count; more say nothing."""
    return "" if p_value is None else f"{p_value:.2g}"
