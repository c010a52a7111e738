"""CUB-200-2011 as distributed: images, and lists of their paths, of their classes, and of the split.

Each list has a line per image, "1 001.Black_footed_Albatross/….jpg", "1 1" and "1 0" (1: a training image).
"""

from __future__ import annotations

from pathlib import Path

from ...errors import UserError
from .image_files import read_labeled_files, resolve_inside
from .interface import ReadOptions, ReadResult

FORMAT = "CUB-200-2011"
_LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


def splits(path: Path) -> tuple[str, ...]:
    return ("train", "test") if _root(path) is not None else ()


def count(path: Path, split: str) -> int:
    return len(_chosen(_found(path), split))


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    root = _found(path)
    images, labels = (_lines(root / name) for name in _LISTS[:2])
    classes = _lines(root / "classes.txt")
    names = tuple(classes[key] for key in sorted(classes, key=int))
    files, of_class = [], []
    for key in _chosen(root, split):
        if key not in images or key not in labels:
            raise UserError(f"{root / _LISTS[2]} names image {key}, which {_LISTS[0]} or {_LISTS[1]} lacks")
        if labels[key] not in classes:
            raise UserError(
                f"{root / _LISTS[1]}: image {key} has class {labels[key]}, which classes.txt lacks"
            )
        files.append(resolve_inside(root / "images", images[key], root / _LISTS[0]))
        of_class.append(classes[labels[key]])
    return read_labeled_files(files, of_class, names, path, root / "classes.txt", options)


def _root(path: Path) -> Path | None:
    """Return the folder of the lists; the archive holds it beside another file."""
    folders = (path, path / "CUB_200_2011")
    return next((f for f in folders if all((f / name).is_file() for name in _LISTS)), None)


def _found(path: Path) -> Path:
    root = _root(path)
    assert root is not None  # splits() has seen it
    return root


def _chosen(root: Path, split: str) -> list[str]:
    """Return the numbers of the images of one split, in order."""
    in_training = _lines(root / _LISTS[2])
    return sorted((key for key, flag in in_training.items() if (flag == "1") == (split == "train")), key=int)


def _lines(file: Path) -> dict[str, str]:
    """Return "number rest" of every line as a dict."""
    found: dict[str, str] = {}
    for i, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        number, _, rest = line.strip().partition(" ")
        if not number:
            continue
        if not number.isdigit() or not rest:
            raise UserError(f"{file}, line {i}: not a number and a word, but {line!r}")
        found[number] = rest.strip()
    return found
