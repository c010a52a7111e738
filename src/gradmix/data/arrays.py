"""Arrays of images and labels, in the usual layouts, to tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError

_ACCEPTED = "accepted are uint8 arrays (N, H, W), (N, H, W, C) or (N, C, H, W) with C 1 or 3"
MAX_CLASSES = 100_000  # a label beyond is a mistake (an id, a pixel), not the name of a class


def label_indices(labels: object, class_names: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Return (N,) int64 indices and the class names of ``labels``: indices, or class names as text."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:  # a column, as .mat and .csv files give
        array = array[:, 0]
    if array.dtype.kind in "UO" and all(isinstance(name, str) for name in array.tolist()):
        return _indices_of_names(array.tolist(), class_names)
    if array.dtype.kind not in "iu":
        raise UserError(f"labels must be whole numbers or class names, not {array.dtype}")
    if class_names is None:
        largest = int(array.max()) if array.size else -1
        if largest >= MAX_CLASSES:
            raise UserError(
                f"label {largest} looks like an id, not a class index; pass names as text instead"
            )
        class_names = [str(c) for c in range(largest + 1)]
    return torch.from_numpy(array.astype(np.int64)), tuple(class_names)


def to_nchw(images: object) -> Tensor:
    """Return uint8 arrays (N, H, W), (N, H, W, C) or (N, C, H, W) as a tensor (N, C, H, W)."""
    if isinstance(images, Tensor):
        tensor = images.detach().cpu()
    else:
        array = np.asarray(images)
        if array.dtype != np.uint8:
            raise UserError(f"images are {array.dtype}; {_ACCEPTED} (scale fractions by 255 and round)")
        tensor = wrap_array(np.ascontiguousarray(array))
    if tensor.dtype != torch.uint8:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise UserError(f"images are {kind}; {_ACCEPTED} (scale fractions by 255 and round)")
    if tensor.ndim == 3:
        return tensor.unsqueeze(1).contiguous()
    if tensor.ndim == 4 and tensor.shape[1] in (1, 3):
        return tensor.contiguous()
    if tensor.ndim == 4 and tensor.shape[3] in (1, 3):
        return tensor.permute(0, 3, 1, 2).contiguous()
    raise UserError(f"images have shape {tuple(tensor.shape)}; {_ACCEPTED}")


def wrap_array(array: NDArray[np.uint8]) -> Tensor:
    """Return a tensor over an array's memory, which may be read-only: nobody here writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def _indices_of_names(labels: list[str], class_names: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    names = sorted(set(labels)) if class_names is None else list(class_names)
    index = {name: i for i, name in enumerate(names)}
    missing = next((name for name in labels if name not in index), None)
    if missing is not None:
        raise UserError(f"label '{missing}' is not among the {len(names)} class names")
    return torch.tensor([index[name] for name in labels], dtype=torch.int64), tuple(names)
