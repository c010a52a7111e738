"""A .npz of arrays: ``images``, ``labels``, perhaps ``class_names``; or x_train, y_train, x_test, y_test."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from ...errors import UserError
from ...machine import memory_bytes
from ..file_names import UNDIVIDED
from ..imageset import ImageSet
from .interface import ReadOptions, ReadResult

FORMAT = ".npz arrays"
_KEYS = {
    UNDIVIDED: ("images", "labels"),
    "train": ("x_train", "y_train"),
    "val": ("x_val", "y_val"),
    "test": ("x_test", "y_test"),
}


def splits(path: Path) -> tuple[str, ...]:
    if not path.is_file() or path.suffix != ".npz":
        return ()
    with _open(path) as arrays:
        there = tuple(split for split, (images, _) in _KEYS.items() if images in arrays.files)
        if not there:
            raise UserError(
                f"{path} has no array called 'images' (it has: {', '.join(arrays.files) or 'nothing'})"
            )
    return there


def count(path: Path, split: str) -> int:
    return len(read(path, split, ReadOptions()).images)


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    image_key, label_key = _KEYS[split]
    _refuse_bomb(path)
    with _open(path) as arrays:
        try:
            images = arrays[image_key]
            labels = arrays[label_key] if label_key in arrays.files else None
            names = [str(name) for name in arrays["class_names"]] if "class_names" in arrays.files else None
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            # Object arrays are pickles, which could run code.
            raise UserError(f"{path} cannot be read ({error}); save plain arrays, names as text") from error
    try:
        found = ImageSet.from_arrays(images, labels, names)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    sources = tuple(f"{path.name}#{i}" for i in range(len(found)))
    return ReadResult(ImageSet(found.images, found.labels, found.class_names, sources))


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
