"""Images that stay on disk: one raw file, memory-mapped, read a batch at a time.

A tensor over the map would be simpler, but has two faults. Pages once read count as memory of this process
until they are dropped, so that after one epoch it would "hold" the whole file. And a subset (hold-out,
known classes) of a tensor is a copy. ``MappedImages`` is the part of a tensor's interface that is used of
``ImageSet.images``: a shape, a length, and ``[index]``, which reads into new memory and drops the pages. A
subset is the same map with other row indices. It is no Tensor subclass: code that needs all pixels at once
has to ask for them, with ``images[:]``.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .resize import convert, converted_shape

_BYTES_AT_ONCE = 16 * 2**20
# Reading one byte of a cached file may map this much of it: the largest piece in which Linux caches files.
_PIECE = 2 * 2**20
_PIECES_AT_ONCE = 16
_IMAGES_CONVERTED = 256


class PixelMap:
    """A file of (N, C, H, W) bytes, mapped into memory; the pages are released after each read."""

    def __init__(self, file: Path, shape: tuple[int, int, int, int]) -> None:
        self.file, self.shape = file, shape
        with open(file, "rb") as f:
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self._row_bytes = shape[1] * shape[2] * shape[3]
        self._pixels = np.frombuffer(self._map, np.uint8).reshape(shape[0], self._row_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return PixelMap, (self.file, self.shape)  # another process maps the same file

    def read(self, rows: NDArray[np.int64]) -> Tensor:
        """Return a copy of the images at ``rows`` (n,): (n, C, H, W)."""
        out = np.empty((len(rows), self._row_bytes), np.uint8)
        at_once = max(1, _BYTES_AT_ONCE // self._row_bytes)
        for first in range(0, len(rows), at_once):
            part = rows[first : first + at_once]
            self._ask_for(part)
            copied = out[first : first + at_once]
            for few in self._split_where_scattered(part):
                # "clip" only to write to ``out`` directly: the rows are known to be there.
                np.take(self._pixels, part[few], axis=0, out=copied[few], mode="clip")
                self._release()
        return torch.from_numpy(out).view(-1, *self.shape[1:])

    def _split_where_scattered(self, rows: NDArray[np.int64]) -> Iterator[slice]:
        """Cut ``rows`` where they get into too many pieces of the file: a few rows could map all of it."""
        pieces_so_far = np.cumsum(np.diff(rows * self._row_bytes // _PIECE, prepend=-1) != 0)
        cuts = np.flatnonzero(np.diff((pieces_so_far - 1) // _PIECES_AT_ONCE)) + 1
        for first, end in pairwise([0, *cuts.tolist(), len(rows)]):
            yield slice(first, end)

    def _ask_for(self, rows: NDArray[np.int64]) -> None:
        """Let the disk work on all rows at once: one page fault after the other would wait for each page."""
        if not hasattr(mmap, "MADV_WILLNEED"):
            return
        for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
            start = int(run[0]) * self._row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_WILLNEED, start, (int(run[-1]) + 1) * self._row_bytes - start)

    def _release(self) -> None:
        """Release the pages. The system keeps them as cache, for all processes, while it has room."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True, eq=False)
class MappedImages:
    """Images (N, C, H, W) uint8 on disk: ``rows`` (N,) of ``source``.

    ``conversions`` are (size, channels), applied one after the other to each batch that is read.
    """

    source: PixelMap
    rows: Tensor
    conversions: tuple[tuple[int | None, int | None], ...] = ()

    dtype = torch.uint8
    ndim = 4

    @property
    def shape(self) -> torch.Size:
        one = self.source.shape[1:]
        for size, channels in self.conversions:
            one = converted_shape(one, size, channels)
        return torch.Size((len(self.rows), *one))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Tensor:
        """Return what ``tensor[index]`` would along the first dimension, read from disk into new memory."""
        rows = self.rows[index.cpu() if isinstance(index, Tensor) else index]
        read = self._read(rows.reshape(-1))
        return read.view(*rows.shape, *self.shape[1:])

    def _read(self, rows: Tensor) -> Tensor:
        if not self.conversions:
            return self.source.read(rows.numpy())
        out = torch.empty((len(rows), *self.shape[1:]), dtype=torch.uint8)
        # In parts, for many small pictures may be asked for of a file of large ones.
        for first in range(0, len(rows), _IMAGES_CONVERTED):
            read = self.source.read(rows[first : first + _IMAGES_CONVERTED].numpy())
            for size, channels in self.conversions:
                read = convert(read, size, channels)
            out[first : first + _IMAGES_CONVERTED] = read
        return out

    def to(self, device: torch.device | str) -> Tensor:
        """Return all images in the memory of ``device``: for the few pictures of a report."""
        return self[:].to(device)

    def select(self, index: Tensor) -> MappedImages:
        """Return the images at ``index``, still on disk."""
        return replace(self, rows=self.rows[index])

    def convert(self, size: int | None, channels: int | None) -> MappedImages:
        """Return the images in another size or number of channels, still on disk; None keeps it."""
        if converted_shape(self.shape[1:], size, channels) == self.shape[1:]:
            return self
        return replace(self, conversions=(*self.conversions, (size, channels)))


Pixels = Tensor | MappedImages


def iterate_parts(images: Pixels) -> Iterator[Tensor]:
    """Yield all images in order, as tensors of about 16 MB: for work that must see every pixel."""
    one = images.shape[1] * images.shape[2] * images.shape[3]
    at_once = max(1, _BYTES_AT_ONCE // one)
    for first in range(0, len(images), at_once):
        yield images[first : first + at_once]
