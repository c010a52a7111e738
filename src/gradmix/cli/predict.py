"""Name images, or call them unknown.

  gradmix predict runs/photos new/                       # a folder, searched through
  gradmix predict runs/photos a.jpg b.jpg --format csv > answers.csv

One row an image: file, label (or 'unknown'), the known class it looks most like, and the score
(higher = more likely known). Images below the run's threshold are unknown.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .tables import print_table

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, or its model.safetensors")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGES", help="image files and folders")
    parser.add_argument("--format", choices=sorted(_WRITERS), default="table", help="default: table")
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")


def run(args: argparse.Namespace) -> int:
    from ..data import load_image_files
    from ..recognition import load

    recognizer = load(args.run)
    views = recognizer.recipe.views
    images, bad = load_image_files(
        args.images, size=views.image_size, channels=views.channels, skip_bad=args.skip_bad
    )
    found = recognizer.predict(images)
    nearest = [recognizer.class_names[i] for i in found.nearest.tolist()]
    rows = [
        {"file": file, "label": label, "nearest": near, "score": round(score, 6)}
        for file, label, near, score in zip(
            images.sources, found.names(), nearest, found.score.tolist(), strict=True
        )
    ]
    _WRITERS[args.format](rows)
    if bad:
        print(f"left out {len(bad)} unreadable images; the first: {bad[0]}", file=sys.stderr)
    return 0


def _write_csv(rows: list[Row]) -> None:
    writer = csv.DictWriter(sys.stdout, ["file", "label", "nearest", "score"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _write_json(rows: list[Row]) -> None:
    print(json.dumps(rows, indent=1, ensure_ascii=False))


def _write_table(rows: list[Row]) -> None:
    from rich.table import Table
    from rich.text import Text  # file names may hold [brackets], which plain cells take for markup

    table = Table("file", "label", "nearest", "score", box=None)
    table.columns[0].overflow = "fold"  # a path must stay whole
    for row in rows:
        style = "dim" if row["label"] == "unknown" else ""
        cells = (row["file"], row["label"], row["nearest"], f"{row['score']:.4f}")
        table.add_row(*map(Text, cells), style=style)
    print_table(table)


_WRITERS: dict[str, Callable[[list[Row]], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "table": _write_table,
}
