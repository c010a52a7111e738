"""The Describable Textures Dataset as distributed: ``images/CLASS/*.jpg`` and ``labels/train1.txt`` ….

Its ten partitions are of the same images; the first one is read, as most papers do.
"""

from __future__ import annotations

from pathlib import Path

from .image_files import list_subfolders, read_labeled_files, resolve_inside
from .interface import ReadOptions, ReadResult

FORMAT = "Describable Textures"


def splits(path: Path) -> tuple[str, ...]:
    if not (path / "images").is_dir():
        return ()
    return tuple(split for split in ("train", "val", "test") if _list(path, split).is_file())


def count(path: Path, split: str) -> int:
    return len(_lines(path, split))


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    names = tuple(folder.name for folder in list_subfolders(path / "images"))
    listed = _list(path, split)
    files = [resolve_inside(path / "images", line, listed) for line in _lines(path, split)]
    classes = [file.parent.name for file in files]
    return read_labeled_files(files, classes, names, path, listed, options)


def _list(path: Path, split: str) -> Path:
    return path / "labels" / f"{split}1.txt"


def _lines(path: Path, split: str) -> list[str]:
    lines = _list(path, split).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip()]
