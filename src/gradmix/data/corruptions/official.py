"""The published files of corrupted images, for those who have them (CIFAR-10-C, CIFAR-100-C)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...errors import UserError, choose
from .apply import CORRUPTIONS
from .severity import SEVERITIES


def has_official(root: str | Path, name: str, folder: str = "CIFAR-10-C") -> bool:
    """Return whether ``root`` holds the published file of this corruption, and the labels."""
    return all((Path(root) / folder / f"{file}.npy").is_file() for file in (name, "labels"))


def load_official(
    root: str | Path, name: str, severity: int, folder: str = "CIFAR-10-C"
) -> tuple[Tensor, Tensor]:
    """Return images (n, 3, H, W) uint8 and labels (n,) int64 of one corruption at one severity.

    ``<root>/<folder>/<name>.npy`` holds the test set five times, (5 n, H, W, 3), severity after severity;
    ``labels.npy`` the labels as often. Only the part asked for is read from the disk.
    """
    choose("corruption", name, CORRUPTIONS)
    if severity not in SEVERITIES:
        raise UserError(f"severity must be 1, 2, 3, 4 or 5, not {severity!r}")
    file = Path(root) / folder / f"{name}.npy"
    pixels, labels = _mapped(file), _mapped(file.with_name("labels.npy"))
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3 or len(pixels) % len(SEVERITIES):
        raise UserError(f"{file} should hold uint8 (5 n, H, W, 3), not {pixels.dtype} {pixels.shape}")
    if labels.shape != (len(pixels),):
        raise UserError(f"{file.name} has {len(pixels)} images but labels.npy beside it {labels.shape}")
    n = len(pixels) // len(SEVERITIES)
    start = SEVERITIES.index(severity) * n
    part = slice(start, start + n)
    images = torch.from_numpy(np.array(pixels[part])).permute(0, 3, 1, 2).contiguous()
    return images, torch.from_numpy(labels[part].astype(np.int64))


def _mapped(file: Path) -> npt.NDArray[np.generic]:
    if not file.is_file():
        raise UserError(f"no {file}; corrupt() makes such images from the clean ones")
    try:
        array: npt.NDArray[np.generic] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{file} is no plain .npy array ({error})") from error
    return array
