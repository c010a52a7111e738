"""EMNIST as distributed: ``emnist-letters-train-images-idx3-ubyte`` and its sisters, gzipped or not.

One folder holds several data sets, so the path of one is the folder and the beginning of its files' names:
``emnist/emnist-letters``. A folder that holds only one can be given itself. The images are stored by columns
and are turned upright here.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from ...errors import UserError
from ..imageset import ImageSet
from .interface import ReadOptions, ReadResult
from .mnist_idx import read_idx

FORMAT = "EMNIST idx files"
_SPLITS = ("train", "test")
_DIGITS, _UPPER = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# The small letters that differ from their capitals; the others are merged with them.
_MERGED = _DIGITS + _UPPER + "abdefghnqrt"
_CLASSES = {
    "letters": _UPPER,
    "balanced": _MERGED,
    "bymerge": _MERGED,
    "byclass": _DIGITS + _UPPER + _UPPER.lower(),
    "digits": _DIGITS,
    "mnist": _DIGITS,
}
_FIRST_LABEL = {"letters": 1}
_NAME = re.compile(r"emnist-(?P<set>[a-z]+)-train-images-idx3-ubyte(\.gz)?")


def splits(path: Path) -> tuple[str, ...]:
    stem = _stem(path)
    return () if stem is None else tuple(split for split in _SPLITS if _find(stem, split, "images-idx3"))


def count(path: Path, split: str) -> int:
    return len(read_idx(_file(path, split, "images-idx3"), 3))


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    image_file, label_file = (_file(path, split, kind) for kind in ("images-idx3", "labels-idx1"))
    which = image_file.name.split("-")[1]
    images, labels = read_idx(image_file, 3), read_idx(label_file, 1).astype(np.int64)
    if len(images) != len(labels):
        raise UserError(f"{image_file} has {len(images)} images, {label_file.name} has {len(labels)} labels")
    names, first = tuple(_CLASSES[which]), _FIRST_LABEL.get(which, 0)
    outside = labels[(labels < first) | (labels >= first + len(names))]
    if len(outside):
        raise UserError(
            f"{label_file} has label {outside[0]}: {which} has {first} to {first + len(names) - 1}"
        )
    upright = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 2, 1))).unsqueeze(1)
    sources = tuple(f"{image_file.name}#{i}" for i in range(len(images)))
    return ReadResult(ImageSet(upright, torch.from_numpy(labels - first), names, sources))


def _stem(path: Path) -> Path | None:
    """Return the folder and the beginning of the files' names; None if there are no such files."""
    if path.name.removeprefix("emnist-") in _CLASSES and path.name.startswith("emnist-"):
        return path
    if not path.is_dir():
        return None
    matches = (_NAME.fullmatch(file.name) for file in path.iterdir())
    found = sorted({match["set"] for match in matches if match and match["set"] in _CLASSES})
    if len(found) > 1:
        names = ", ".join(f"emnist-{name}" for name in found)
        raise UserError(f"{path} has several data sets ({names}); put it in the data root and name one")
    return path / f"emnist-{found[0]}" if found else None


def _file(path: Path, split: str, kind: str) -> Path:
    stem = _stem(path)
    assert stem is not None  # splits() has seen it
    file = _find(stem, split, kind)
    if file is None:
        raise UserError(f"{stem.parent} has no {stem.name}-{split}-{kind}-ubyte, the labels of its images")
    return file


def _find(stem: Path, split: str, kind: str) -> Path | None:
    name = f"{stem.name}-{split}-{kind}-ubyte"
    return next(
        (file for file in (stem.with_name(name), stem.with_name(f"{name}.gz")) if file.is_file()), None
    )
