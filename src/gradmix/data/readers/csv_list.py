"""A .csv of (path, label) per row; ``train.csv`` has val.csv and test.csv beside it as its splits.

Paths are relative to the .csv. A first row such as ``path,label`` is a header; its columns may then be in any
order, and further columns are ignored. Without one, the path comes first and the label second. Labels are
names of classes, in sorted order. The classes of ``train.csv`` are those of its splits too: an image of
another class is labelled unknown.
"""

from __future__ import annotations

import csv
from pathlib import Path

from ...errors import UserError, first_line
from ..file_names import SPLIT_NAMES, UNDIVIDED
from .image_files import read_labeled_files, resolve_inside
from .interface import ReadOptions, ReadResult

FORMAT = ".csv of paths and labels"
_PATH_COLUMNS = {"path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path"}
_LABEL_COLUMNS = {"label", "labels", "class", "class_name", "category", "target", "y"}
_Rows = list[tuple[int, str, str]]  # line, path, label


def splits(path: Path) -> tuple[str, ...]:
    if path.suffix.lower() != ".csv" or not path.is_file():
        return ()
    beside = tuple(split for split in SPLIT_NAMES if path.with_name(f"{split}.csv").is_file())
    return beside if path.name == "train.csv" and len(beside) > 1 else (UNDIVIDED,)


def count(path: Path, split: str) -> int:
    return len(_rows(_file(path, split)))


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    listed = _file(path, split)
    rows = _rows(listed)
    if not rows:
        raise UserError(f"{listed} lists no images; give one path and label per line")
    training = rows if split in ("train", UNDIVIDED) else _rows(_file(path, "train"))
    names = tuple(sorted({label for _, _, label in training}))
    files = [resolve_inside(listed.parent, file, listed, line) for line, file, _ in rows]
    classes = [label if label in names else None for _, _, label in rows]
    return read_labeled_files(files, classes, names, listed.parent, listed, options)


def _file(path: Path, split: str) -> Path:
    return path if split == UNDIVIDED else path.with_name(f"{split}.csv")


def _rows(file: Path) -> _Rows:
    """Return (line, path, label) of every image; blank lines are skipped."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as f:
            start = f.readline()
            f.seek(0)
            delimiter = next((mark for mark in ",;\t" if mark in start), ",")
            reader = csv.reader(f, delimiter=delimiter, strict=True)
            table = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise UserError(f"{file} cannot be read as a .csv ({first_line(error)})") from error
    path_column, label_column, first = _columns(table[0][1]) if table else (0, 1, 0)
    rows: _Rows = []
    for line, row in table[first:]:
        if len(row) <= max(path_column, label_column):
            raise UserError(f"{file}, line {line}: not a path and a label, but {delimiter.join(row)!r}")
        path, label = row[path_column].strip(), row[label_column].strip()
        if not path or not label:
            raise UserError(f"{file}, line {line}: the {'label' if path else 'path'} is empty")
        rows.append((line, path, label))
    return rows


def _columns(header: list[str]) -> tuple[int, int, int]:
    """Return the columns of path and label, and how many rows are a header.

    >>> _columns(["id", "Label", "path"]), _columns(["cat/1.png", "cat"])
    ((2, 1, 1), (0, 1, 0))
    """
    cells = [cell.strip().lower() for cell in header]
    path = next((i for i, cell in enumerate(cells) if cell in _PATH_COLUMNS), None)
    label = next((i for i, cell in enumerate(cells) if cell in _LABEL_COLUMNS), None)
    return (0, 1, 0) if path is None or label is None else (path, label, 1)
