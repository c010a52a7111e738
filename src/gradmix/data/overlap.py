"""Images that are in two sets at once: an unknown set that overlaps the known one measures nothing.

Two images are identical if all their pixels are, in the size in which the sets were read: then no network
tells them apart. Every image gets a 64-bit number, h(x) = Σᵢ wᵢ xᵢ mod 2⁶⁴ with fixed odd random weights wᵢ
over its 8-byte words xᵢ; equal numbers are only candidates, whose pixels are then compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..progress import progress
from .imageset import ImageSet
from .mapped_images import Pixels, iterate_parts

_WORD = 8  # bytes
_PAIRS_AT_ONCE = 256


def find_identical(known: ImageSet, unknown: ImageSet) -> list[tuple[int, int]]:
    """Return (i, j) for each image j of ``unknown`` that is also in ``known``, at i: the first such i.

    Both sets must have been read in one size and number of channels.

    >>> images = torch.arange(4, dtype=torch.uint8).reshape(4, 1, 1, 1)
    >>> find_identical(ImageSet.from_arrays(images[:3]), ImageSet.from_arrays(images[[3, 2, 0]]))
    [(2, 1), (0, 2)]
    """
    if known.images.shape[1:] != unknown.images.shape[1:]:
        shapes = [" x ".join(map(str, images.images.shape[1:])) for images in (known, unknown)]
        raise UserError(f"images of {shapes[0]} and {shapes[1]} cannot be compared; read both in one size")
    with progress("comparing the images", len(known) + len(unknown)) as advance:
        numbers = []
        for images in (known, unknown):
            parts = []
            for part in iterate_parts(images.images):
                parts.append(_hash_rows(part))
                advance(len(part))
            numbers.append(np.concatenate(parts) if parts else np.zeros(0, np.uint64))
    distinct, first = np.unique(numbers[0], return_index=True)
    if not len(distinct):
        return []
    place = np.searchsorted(distinct, numbers[1]).clip(max=len(distinct) - 1)
    candidates = np.flatnonzero(distinct[place] == numbers[1])
    pairs = np.stack([first[place[candidates]], candidates], axis=1)
    return [
        (i, j) for some in _compare(known.images, unknown.images, torch.from_numpy(pairs)) for i, j in some
    ]


def describe_identical(known: ImageSet, unknown: ImageSet, known_name: str, unknown_name: str) -> str:
    """Return a sentence on the images that are in both sets: the first pair, and how many. "" if none is."""
    pairs = find_identical(known, unknown)
    if not pairs:
        return ""
    i, j = pairs[0]
    same = f"{_name(unknown, j)} of {unknown_name} is the same image as {_name(known, i)} of {known_name}"
    return same + (f" ({len(pairs):,} such images)" if len(pairs) > 1 else "")


def refuse_identical(known: ImageSet, unknown: ImageSet, known_name: str, unknown_name: str) -> None:
    """Raise if an image of ``unknown`` is in ``known`` too.

    For folders of one's own. Published data sets may have such a pair, which stays in for comparison.
    """
    same = describe_identical(known, unknown, known_name, unknown_name)
    if same:
        raise UserError(f"{same}; an image cannot be known and unknown: take it out of one of them")


def _name(images: ImageSet, index: int) -> str:
    return images.sources[index] if images.sources else f"image {index}"


def _hash_rows(images: Tensor) -> NDArray[np.uint64]:
    """Return (N,) numbers of (N, C, H, W) bytes; the last word is filled up with zeros."""
    rows = images.contiguous().numpy().reshape(len(images), -1)
    missing = -rows.shape[1] % _WORD
    if missing:
        rows = np.pad(rows, ((0, 0), (0, missing)))
    words = rows.view(np.uint64)
    generator = np.random.default_rng(0)
    weights = generator.integers(0, 2**64, words.shape[1], np.uint64) | np.uint64(1)
    return np.asarray(words @ weights)  # whole numbers wrap around: modulo 2⁶⁴


def _compare(known: Pixels, unknown: Pixels, pairs: Tensor) -> Iterator[list[tuple[int, int]]]:
    """Yield those of ``pairs`` (n, 2) whose pixels are equal, reading a bounded number of images at once."""
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        some = pairs[start : start + _PAIRS_AT_ONCE]
        equal = (known[some[:, 0]] == unknown[some[:, 1]]).flatten(1).all(1)
        yield [(int(i), int(j)) for i, j in some[equal].tolist()]
