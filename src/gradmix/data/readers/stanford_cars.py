"""Stanford Cars as distributed: ``cars_train/``, ``cars_test/`` and the .mat annotations of the devkit.

The test images' labels are in ``cars_test_annos_withlabels.mat``, in the devkit or beside it. Classes are
numbered from 1 there and from 0 here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import UserError, first_line
from .image_files import read_labeled_files, resolve_inside
from .interface import ReadOptions, ReadResult

FORMAT = "Stanford Cars"
_ANNOTATIONS = {"train": "cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}


def splits(path: Path) -> tuple[str, ...]:
    if _find(path, "cars_meta.mat") is None:
        return ()
    return tuple(
        split
        for split, name in _ANNOTATIONS.items()
        if _find(path, name) and (path / f"cars_{split}").is_dir()
    )


def count(path: Path, split: str) -> int:
    return len(_rows(_file(path, _ANNOTATIONS[split])))


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    listed, meta = _file(path, _ANNOTATIONS[split]), _file(path, "cars_meta.mat")
    names = tuple(str(name) for name in _load(meta, "class_names").tolist())
    rows = _rows(listed)
    wrong = next((number for number, _ in rows if not 1 <= number <= len(names)), None)
    if wrong is not None:
        raise UserError(f"{listed} has class {wrong}; {meta.name} names 1 to {len(names)}")
    folder = path / f"cars_{split}"
    if (folder / folder.name).is_dir():  # as some archives are packed
        folder /= folder.name
    files = [resolve_inside(folder, name, listed) for _, name in rows]
    return read_labeled_files(files, [names[number - 1] for number, _ in rows], names, path, listed, options)


def _rows(file: Path) -> list[tuple[int, str]]:
    """Return (class, file name) of every image."""
    table = _load(file, "annotations")
    try:
        return [(int(number), str(name)) for number, name in zip(table["class"], table["fname"], strict=True)]
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise UserError(f"{file} has no 'class' and 'fname' per image ({first_line(error)})") from error


def _load(file: Path, variable: str) -> Any:
    from scipy.io import loadmat  # slow to import, and seldom needed

    try:
        return loadmat(file, variable_names=(variable,), squeeze_me=True)[variable].reshape(-1)
    except Exception as error:  # loadmat raises many kinds on damaged files
        raise UserError(f"{file} cannot be read ({first_line(error)}); get it again") from error


def _find(path: Path, name: str) -> Path | None:
    return next((file for file in (path / name, path / "devkit" / name) if file.is_file()), None)


def _file(path: Path, name: str) -> Path:
    file = _find(path, name)
    assert file is not None  # splits() has seen it
    return file
