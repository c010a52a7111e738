"""FGVC-Aircraft as distributed: ``data/images/*.jpg`` and ``data/images_variant_trainval.txt`` ….

Classes are the variants, sorted by name. "train" is the list ``trainval``.
"""

from __future__ import annotations

from pathlib import Path

from ...errors import UserError
from .image_files import read_labeled_files, resolve_inside
from .interface import ReadOptions, ReadResult

FORMAT = "FGVC-Aircraft"
_LISTS = {"train": "images_variant_trainval.txt", "test": "images_variant_test.txt"}


def splits(path: Path) -> tuple[str, ...]:
    root = _root(path)
    return () if root is None else tuple(split for split, name in _LISTS.items() if (root / name).is_file())


def count(path: Path, split: str) -> int:
    return len(_rows(_found(path) / _LISTS[split]))


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    root = _found(path)
    listed = root / _LISTS[split]
    rows = _rows(listed)
    variants = (root / "variants.txt").read_text(encoding="utf-8").splitlines()
    names = tuple(sorted({name.strip() for name in variants if name.strip()}))
    files = [resolve_inside(root / "images", f"{number}.jpg", listed) for number, _ in rows]
    return read_labeled_files(files, [name for _, name in rows], names, path, listed, options)


def _root(path: Path) -> Path | None:
    folders = (path, path / "data", path / "fgvc-aircraft-2013b" / "data")
    return next((f for f in folders if (f / "variants.txt").is_file() and (f / "images").is_dir()), None)


def _found(path: Path) -> Path:
    root = _root(path)
    assert root is not None  # splits() has seen it
    return root


def _rows(file: Path) -> list[tuple[str, str]]:
    """Return (number of the image, variant) of every line; a variant's name may have spaces."""
    rows: list[tuple[str, str]] = []
    for i, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        number, _, variant = line.strip().partition(" ")
        if number and not variant.strip():
            raise UserError(f"{file}, line {i}: not 'number variant', but {line!r}")
        if number:
            rows.append((number, variant.strip()))
    return rows
