"""The training features, laid out so that the k nearest of every class are found quickly and exactly.

Features are sorted by class once. A search takes some hundred queries at a time and multiplies them with
one *tile* of training features after another. A tile holds several classes of about the same size, padded
to a rectangle, so that a single call finds the k largest of all of them; a class too large for a tile is
searched in pieces that are merged. Nothing larger than the tile's similarities is ever held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError

DEFAULT_CHUNK_BYTES = 256 * 2**20

# Larger tiles fall out of the processor's caches and are slower, whatever memory there is.
_FASTEST_TILE_BYTES = 32 * 2**20
_TEMPORARIES_PER_TILE = 8  # similarities, gathered features, values and int64 places of the k largest
_MOST_QUERIES = 512
# Classes are padded to the largest of their tile; this bounds the waste.
_LARGEST_PADDING = 1.25
# Below this many images a class, inserting image after image for all classes at once beats torch.topk,
# whose cost per row is then mostly overhead (measured: 2.5 times faster at 1,000 classes of 60).
_NARROW = 128
_NARROW_LARGEST_K = 16


def unit_rows(z: Tensor) -> Tensor:
    """Rows of ``z`` (N, d) scaled to length 1, as float32; zero rows stay zero.

    Dividing by the largest entry first keeps the squares of very large and very small ones in range.

    >>> unit_rows(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    z = z.float()
    if z.numel() == 0:
        return z
    largest = z.abs().amax(dim=1, keepdim=True)
    z = z / torch.where(largest > 0, largest, torch.ones_like(largest))
    length: Tensor = torch.linalg.vector_norm(z, dim=1, keepdim=True)
    return z / length.clamp_min(1e-12)


@dataclass(frozen=True)
class Bank:
    """Unit features of the training images, sorted by class: class c is rows ``start[c]:start[c + 1]``."""

    features: Tensor  # (M, d) float32, unit rows (or zero)
    labels: Tensor  # (M,) int64, ascending
    order: Tensor  # (M,) int64: row i was image order[i] of the caller
    start: Tensor  # (C + 1,) int64

    @classmethod
    def build(cls, unit: Tensor, labels: Tensor, num_classes: int) -> Bank:
        """Sort unit features (M, d) by class; within a class the caller's order is kept."""
        order = torch.argsort(labels, stable=True)
        start = torch.zeros(num_classes + 1, dtype=torch.int64, device=labels.device)
        start[1:] = torch.bincount(labels, minlength=num_classes).cumsum(0)
        return cls(unit[order].contiguous(), labels[order], order, start)

    @property
    def num_classes(self) -> int:
        return len(self.start) - 1

    def query_chunks(self, count: int, per_query: int, chunk_bytes: int) -> Iterator[slice]:
        """Cut ``count`` queries so that ``per_query`` floats for each of a chunk fit the budget."""
        rows = _tile_bytes(chunk_bytes) // (4 * max(per_query, self.features.shape[1], 1))
        rows = max(1, min(rows, _MOST_QUERIES))
        for first in range(0, count, rows):
            yield slice(first, min(first + rows, count))

    def class_similarity(self, unit: Tensor, k: int, chunk_bytes: int, own: Tensor | None = None) -> Tensor:
        """d_c for one chunk of unit queries (n, d): (n, C), -inf where a class has no image.

        ``own`` (n,) names the row of the bank that each query is, to be left out of its neighbours.
        """
        d = unit.new_full((len(unit), self.num_classes), -torch.inf)
        for classes, pieces in self._blocks(_columns(len(unit), unit.shape[1], chunk_bytes)):
            best: Tensor | None = None
            for first, width in pieces:
                top = self._top_of_tile(unit, classes, first, width, k, own)
                if best is not None:
                    top = torch.cat([best, top], dim=2)
                    top = top.topk(min(k, top.shape[2]), dim=2).values
                best = top
            if best is not None:
                d[:, classes] = _mean_of_present(best) * k
        return d

    def nearest(self, unit: Tensor, top: int, chunk_bytes: int) -> tuple[Tensor, Tensor]:
        """The ``top`` nearest rows to one chunk of unit queries (n, d): places and similarities, (n, top)."""
        step = _columns(len(unit), unit.shape[1], chunk_bytes)
        places = torch.empty((len(unit), 0), dtype=torch.int64, device=unit.device)
        values = unit.new_empty((len(unit), 0))
        for first in range(0, len(self.features), step):
            similarity = unit @ self.features[first : first + step].T
            near = similarity.topk(min(top, similarity.shape[1]), dim=1)
            values = torch.cat([values, near.values], dim=1)
            places = torch.cat([places, near.indices + first], dim=1)
            merged = values.topk(min(top, values.shape[1]), dim=1)
            values, places = merged.values, places.gather(1, merged.indices)
        return places, values.clamp(-1.0, 1.0)

    def _blocks(self, columns: int) -> Iterator[tuple[Tensor, list[tuple[int, int]]]]:
        """Yield classes that share a tile, with the (first image, width) pieces to search them in."""
        sizes = self.start.diff()
        by_size = torch.argsort(sizes, stable=True)
        ascending = sizes[by_size].tolist()
        i = int((sizes == 0).sum())  # classes without images have no tile
        while i < len(ascending):
            j, smallest = i + 1, ascending[i]
            while j < len(ascending) and ascending[j] <= smallest * _LARGEST_PADDING:
                if ascending[j] * (j + 1 - i) > columns:
                    break
                j += 1
            width = ascending[j - 1]
            pieces = [(first, min(columns, width - first)) for first in range(0, width, columns)]
            yield by_size[i:j], pieces
            i = j

    def _top_of_tile(
        self, unit: Tensor, classes: Tensor, first: int, width: int, k: int, own: Tensor | None
    ) -> Tensor:
        """The k largest similarities to images first..first+width of each class: (n, G, min(k, width)).

        -inf stands for images that are not there: padding, and the query itself.
        """
        rank = first + torch.arange(width, device=unit.device)[:, None]
        start, stop = self.start[classes], self.start[classes + 1]
        rows = start + rank  # (width, G)
        absent = rows >= stop
        narrow = width <= _NARROW and k <= _NARROW_LARGEST_K
        if not narrow:
            rows, absent = rows.T, absent.T
        table = rows.clamp_max(len(self.features) - 1).reshape(-1)
        similarity = unit @ self.features[table].T
        if bool(absent.any()):
            similarity.masked_fill_(absent.reshape(1, -1), -torch.inf)
        if own is not None:
            similarity[_columns_of_own(rows, own, narrow)] = -torch.inf
        if narrow:
            return _largest_by_insertion(similarity.view(len(unit), width, len(classes)), k)
        return similarity.view(len(unit), len(classes), width).topk(min(k, width), dim=2).values


def check_bank_inputs(unit: Tensor, bank: Bank) -> None:
    """Queries must live in the space of the training features."""
    if unit.shape[1] != bank.features.shape[1]:
        raise UserError(
            f"features have {unit.shape[1]} dimensions, the training features {bank.features.shape[1]}; "
            "use the same network for both"
        )


def _tile_bytes(chunk_bytes: int) -> int:
    return min(_FASTEST_TILE_BYTES, chunk_bytes // _TEMPORARIES_PER_TILE)


def _columns(queries: int, dimensions: int, chunk_bytes: int) -> int:
    return max(1, _tile_bytes(chunk_bytes) // (4 * max(queries, dimensions, 1)))


def _columns_of_own(rows: Tensor, own: Tensor, rank_major: bool) -> tuple[Tensor, Tensor]:
    """Which (query, column) pairs of a tile are an image compared with itself.

    Along a class the rows of a tile are consecutive, so a subtraction finds the place.
    """
    first = rows[0] if rank_major else rows[:, 0]  # (G,) the first row of each class in this tile
    width = len(rows) if rank_major else rows.shape[1]
    by_row = torch.argsort(first)
    slot = torch.searchsorted(first[by_row], own, right=True) - 1
    inside = slot >= 0
    group = by_row[slot.clamp_min(0)]
    rank = own - first[group]
    query = (inside & (rank < width)).nonzero()[:, 0]
    group, rank = group[query], rank[query]
    column = rank * len(first) + group if rank_major else group * width + rank
    return query, column


def _largest_by_insertion(values: Tensor, k: int) -> Tensor:
    """The k largest along dim 1 of (n, width, G), as (n, G, min(k, width)), in descending order."""
    width = values.shape[1]
    best = [values[:, 0]]
    for r in range(1, width):
        fallen = values[:, r]
        for j in range(len(best)):
            risen = torch.maximum(best[j], fallen)
            if j + 1 < k:  # what falls below the k-th is never needed
                fallen = torch.minimum(best[j], fallen)
            best[j] = risen
        if len(best) < k:
            best.append(fallen)
    return torch.stack(best, dim=2)


def _mean_of_present(top: Tensor) -> Tensor:
    """Mean over dim 2 of the entries that are not -inf; -inf where there is none.

    Rounding can push the cosine of equal vectors past 1, hence the clamp.
    """
    present = top > -torch.inf
    total = torch.where(present, top.clamp(-1.0, 1.0), torch.zeros_like(top)).sum(dim=2)
    count = present.sum(dim=2)
    mean = total / count.clamp_min(1)
    return torch.where(count > 0, mean, torch.full_like(mean, -torch.inf))
