"""MNIST (and its kin in the same format) as distributed: four idx files, gzipped or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import UserError
from ..imageset import ImageSet
from .interface import ReadOptions, ReadResult

FORMAT = "MNIST idx files"
_PREFIXES = {"train": "train", "test": "t10k"}
_TORCHVISION = ("MNIST", "FashionMNIST", "KMNIST")  # folders that torchvision makes
_MOST_TIMES_SMALLER = 1100  # gzip makes nothing smaller than by 1032


def splits(path: Path) -> tuple[str, ...]:
    return tuple(split for split in _PREFIXES if _find(path, split, "images-idx3"))


def count(path: Path, split: str) -> int:
    image_file = _find(path, split, "images-idx3")
    assert image_file is not None  # splits() has seen it
    return len(read_idx(image_file, 3))


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    image_file = _find(path, split, "images-idx3")
    label_file = _find(path, split, "labels-idx1")
    assert image_file is not None  # splits() has seen it
    if label_file is None:
        raise UserError(f"{image_file} has no labels beside it ({_PREFIXES[split]}-labels-idx1-ubyte)")
    images, labels = read_idx(image_file, 3), read_idx(label_file, 1)
    if len(images) != len(labels):
        raise UserError(f"{image_file} has {len(images)} images, {label_file.name} has {len(labels)} labels")
    n_classes = max(10, int(labels.max(initial=0)) + 1)
    return ReadResult(
        ImageSet(
            torch.from_numpy(images).unsqueeze(1),
            torch.from_numpy(labels.astype(np.int64)),
            tuple(str(c) for c in range(n_classes)),
            tuple(f"{image_file.name}#{i}" for i in range(len(images))),
        )
    )


def read_idx(file: Path, n_dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of bytes: two zeros, type 8, number of dimensions, big-endian sizes, values."""
    most = file.stat().st_size * _MOST_TIMES_SMALLER
    try:
        with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as f:
            header = f.read(4 + 4 * n_dimensions)
            if len(header) < 4 + 4 * n_dimensions or header[:4] != bytes([0, 0, 8, n_dimensions]):
                raise UserError(f"{file} is not an idx file of {n_dimensions} dimensions")
            shape = struct.unpack(f">{n_dimensions}I", header[4:])
            size = math.prod(shape)
            content = f.read(size + 1) if size <= most else b""  # no more than promised, were it a bomb
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} is damaged ({error}); get it again") from error
    if len(content) != size:
        raise UserError(f"{file} is cut off or too long: its header says {' x '.join(map(str, shape))}")
    return np.frombuffer(bytearray(content), np.uint8).reshape(shape)


def _find(path: Path, split: str, kind: str) -> Path | None:
    for folder in (path, path / "raw", *(path / name / "raw" for name in _TORCHVISION)):
        for stem in (
            f"{_PREFIXES[split]}-{kind}-ubyte",
            f"{_PREFIXES[split]}-{kind.replace('-', '.')}-ubyte",
        ):
            for file in (folder / stem, folder / f"{stem}.gz"):
                if file.is_file():
                    return file
    return None
