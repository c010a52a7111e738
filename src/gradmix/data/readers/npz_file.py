"""A .npz of arrays: ``images`` and ``labels``, or a pair per split, perhaps ``class_names``.

Pairs are called x_train, y_train, x_test, y_test; or, as MedMNIST has them, train_images, train_labels,
val_images, …, with labels in a column (N, 1).
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from ...errors import UserError
from ...machine import memory_bytes
from ..arrays import MAX_CLASSES
from ..file_names import UNDIVIDED
from ..imageset import ImageSet
from .interface import ReadOptions, ReadResult

FORMAT = ".npz arrays"
_Pair = tuple[str, str]  # the names of the images' array and of the labels'
_KEYS: dict[str, tuple[_Pair, ...]] = {
    UNDIVIDED: (("images", "labels"),),
    **{
        split: ((f"x_{split}", f"y_{split}"), (f"{split}_images", f"{split}_labels"))
        for split in ("train", "val", "test")
    },
}


def splits(path: Path) -> tuple[str, ...]:
    if not path.is_file() or path.suffix != ".npz":
        return ()
    with _open(path) as arrays:
        there = tuple(_pairs(arrays))
        if not there:
            raise UserError(
                f"{path} has no array called 'images' (it has: {', '.join(arrays.files) or 'nothing'})"
            )
    return there


def count(path: Path, split: str) -> int:
    return len(read(path, split, ReadOptions()).images)


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    _refuse_bomb(path)
    with _open(path) as arrays:
        try:
            image_key, label_key = _pairs(arrays)[split]
            images = arrays[image_key]
            labels = arrays[label_key] if label_key in arrays.files else None
            names = _class_names(arrays)
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            # Object arrays are pickles, which could run code.
            raise UserError(f"{path} cannot be read ({error}); save plain arrays, names as text") from error
    try:
        found = ImageSet.from_arrays(images, labels, names)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    sources = tuple(f"{path.name}#{i}" for i in range(len(found)))
    return ReadResult(ImageSet(found.images, found.labels, found.class_names, sources))


def _pairs(arrays: np.lib.npyio.NpzFile) -> dict[str, _Pair]:
    """Return the pair of arrays of each split that is there."""
    found = {
        split: next((pair for pair in pairs if pair[0] in arrays.files), None)
        for split, pairs in _KEYS.items()
    }
    return {split: pair for split, pair in found.items() if pair is not None}


def _class_names(arrays: np.lib.npyio.NpzFile) -> list[str] | None:
    """Return the names in the file, or numbers up to the largest label of all splits; None for text labels.

    One split alone may lack the last class.
    """
    if "class_names" in arrays.files:
        return [str(name) for name in arrays["class_names"]]
    labels = [arrays[key] for _, key in _pairs(arrays).values() if key in arrays.files]
    if len(labels) < 2 or any(label.dtype.kind not in "iu" or not label.size for label in labels):
        return None
    largest = max(int(label.max()) for label in labels)
    return [str(c) for c in range(largest + 1)] if largest < MAX_CLASSES else None


def _refuse_bomb(path: Path) -> None:
    """Raise if an array is larger than the memory: arrays of zeros compress a thousandfold."""
    try:
        with zipfile.ZipFile(path) as archive:
            largest = max(archive.infolist(), key=lambda info: info.file_size, default=None)
    except (OSError, ValueError, zipfile.BadZipFile):
        return  # _open reports it
    if largest is not None and largest.file_size > memory_bytes():
        array, size = largest.filename.removesuffix(".npy"), largest.file_size / 2**30
        raise UserError(
            f"{path}: array '{array}' has {size:.0f} GB, more than this machine's memory; use a folder"
        )


def _open(path: Path) -> np.lib.npyio.NpzFile:
    try:
        opened = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a readable .npz file ({error})") from error
    if not isinstance(opened, np.lib.npyio.NpzFile):
        raise UserError(f"{path} is a single array, not a .npz of 'images' and 'labels'")
    return opened
