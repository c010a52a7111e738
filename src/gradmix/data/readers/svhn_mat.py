"""SVHN's cropped digits as distributed: ``train_32x32.mat`` and its sisters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ...errors import UserError
from ..imageset import ImageSet
from .interface import ReadOptions, ReadResult

FORMAT = "SVHN .mat files"
_SPLITS = ("train", "test", "extra")


def splits(path: Path) -> tuple[str, ...]:
    return tuple(split for split in _SPLITS if _file(path, split).is_file())


def count(path: Path, split: str) -> int:
    from scipy.io import whosmat

    try:
        return next(int(shape[3]) for name, shape, _ in whosmat(_file(path, split)) if name == "X")
    except Exception as error:  # as many kinds as loadmat
        raise UserError(f"{_file(path, split)} cannot be read as a .mat file ({error})") from error


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    from scipy.io import loadmat  # slow to import, and seldom needed

    file = _file(path, split)
    try:
        content = loadmat(file, variable_names=("X", "y"))
        pixels, digits = content["X"], content["y"].reshape(-1)
    except Exception as error:  # loadmat raises many kinds on damaged files
        raise UserError(f"{file} cannot be read as a .mat file ({error}); get it again") from error
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[2:] != (3, len(digits)):
        raise UserError(f"{file} is not SVHN's cropped digits: X is {pixels.dtype} {pixels.shape}")
    labels = digits.astype(np.int64) % 10  # the digit 0 is stored as 10
    return ReadResult(
        ImageSet(
            torch.from_numpy(np.ascontiguousarray(pixels.transpose(3, 2, 0, 1))),
            torch.from_numpy(labels),
            tuple("0123456789"),
            tuple(f"{file.name}#{i}" for i in range(len(labels))),
        )
    )


def _file(path: Path, split: str) -> Path:
    return path / f"{split}_32x32.mat"
