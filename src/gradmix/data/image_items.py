"""Single images of any kind, mixed as they come: files, encoded bytes, Pillow's images, arrays, tensors."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..errors import UserError
from ..progress import no_progress
from .array_layout import is_one, to_one
from .decoding import Unreadable, decode_many, make_plain, raise_if_bad
from .imageset import UNKNOWN, ImageFormat, ImageSet
from .resize import convert

ACCEPTED = (
    "accepted are paths, encoded bytes, Pillow's images, uint8 arrays and tensors, lists, Series and "
    "iterators of these, an ImageSet, a torch Dataset"
)
_ADDRESS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/|data:")  # two letters or more: C:/ is a drive


def refuse_address(path: str | os.PathLike[str]) -> None:
    """Raise if ``path`` is an address of the network: nothing is downloaded behind the user's back."""
    text = os.fspath(path)
    if not _ADDRESS.match(text) or Path(text).exists():
        return
    shown = text if len(text) <= 80 else f"{text[:79]}…"
    if text.startswith("hf:"):
        raise UserError(
            f"{shown} is an address on the Hub, and images are read from this machine only; get a data set "
            "with: gradmix data get"
        )
    raise UserError(
        f"{shown} is an address, and images are read from this machine only; download it first, and give the "
        "file"
    )


def is_single(x: Any) -> bool:
    """Return whether ``x`` is one image by its type: Pillow's, encoded bytes, or an open file of them."""
    return isinstance(x, Image.Image | bytes | bytearray | memoryview) or hasattr(x, "read")


def read_items(items: Sequence[Any], image_format: ImageFormat, first: int = 0) -> ImageSet:
    """Return the images, one per item, in the format asked for; ``first`` is the number of the first one.

    Files and bytes are decoded in threads, arrays of one shape are resized together.
    """
    size, channels = image_format.size, image_format.channels
    out = torch.empty((len(items), channels, size, size), dtype=torch.uint8)
    encoded: dict[int, Path | bytes] = {}
    stacks: dict[tuple[int, ...], list[tuple[int, Tensor]]] = {}
    names = [""] * len(items)
    for i, item in enumerate(items):
        found = _open(item, first + i, size)
        if isinstance(found, Tensor):
            stacks.setdefault(tuple(found.shape), []).append((i, found))
        else:
            encoded[i] = found
        names[i] = str(found) if isinstance(found, Path) else str(getattr(item, "filename", "") or "")
    for stack in stacks.values():
        rows, pixels = zip(*stack, strict=True)
        out[list(rows)] = convert(torch.cat(pixels), size, channels)
    if encoded:
        called = [names[i] or f"image {first + i}" for i in encoded]
        decoded = decode_many(list(encoded.values()), called, None, size, channels, bar=no_progress)
        raise_if_bad(decoded.bad, skip_bad=False)
        out[list(encoded)] = decoded.images[:]
    labels = torch.full((len(items),), UNKNOWN)
    return ImageSet(out, labels, (), tuple(names) if any(names) else ())


def picture_to_nchw(image: Image.Image, size: int | None, name: str) -> Tensor:
    """Return a Pillow image as (1, C, H, W) uint8, prepared as one from a file is."""
    try:
        pixels = np.array(make_plain(image, size))
    except Unreadable as reason:
        raise UserError(f"{name} {reason}") from reason
    return torch.from_numpy(pixels.reshape(1, *pixels.shape[:2], -1)).permute(0, 3, 1, 2).contiguous()


def _open(item: Any, number: int, size: int) -> Path | bytes | Tensor:
    """Return a file, encoded bytes, or pixels (1, C, H, W)."""
    for kinds, open_item in _KINDS:
        if isinstance(item, kinds):
            return open_item(item, number, size)
    if hasattr(item, "read"):
        return _read_stream(item, number)
    kind = type(item).__name__
    raise UserError(f"image {number} is of type {kind}, which is no image; {ACCEPTED}")


def _open_path(path: str | os.PathLike[str], number: int, size: int) -> Path:
    refuse_address(path)
    file = Path(path)
    if file.is_dir():
        raise UserError(f"{file} is a folder among single images; give its files, or the folder alone")
    if not file.exists():
        raise UserError(f"no such file or folder: {file}")
    return file


def _open_array(array: Any, number: int, size: int) -> Tensor:
    shape = tuple(array.shape)
    if len(shape) == 4 and shape[0] == 1:
        array, shape = array[0], shape[1:]
    if not is_one(shape):
        raise UserError(
            f"image {number} has shape {shape}, which is no image: give (H, W), (H, W, C) or (C, H, W)"
        )
    return to_one(array)


def _read_stream(stream: Any, number: int) -> bytes:
    content = stream.read()
    if not isinstance(content, bytes):
        raise UserError(
            f"image {number} is a file that gives {type(content).__name__}, not bytes: open it with 'rb'"
        )
    return content


_KINDS: tuple[tuple[Any, Callable[[Any, int, int], Path | bytes | Tensor]], ...] = (
    (str | os.PathLike, _open_path),
    (bytes | bytearray | memoryview, lambda item, number, size: bytes(item)),
    (Image.Image, lambda item, number, size: picture_to_nchw(item, size, f"image {number}")),
    (np.ndarray | Tensor, _open_array),
)
