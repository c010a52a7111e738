"""The training features, laid out so that the k nearest of every class are found quickly and exactly.

Classes of about the same size share a *group*: a rectangle of rows, one class after the other, each padded
to the largest of them. A search multiplies one group after another with some hundred queries and takes
the k largest of all its classes in a few operations. Nothing is copied or gathered on the way, and
nothing larger than the similarities to one group is ever held.

The k largest are found by a few operations on large tensors rather than a search of each row. Values are
(G, W, n): for each of G classes and n queries, the similarities to the class's W images. Queries come last,
so that every operation runs along contiguous memory. ``torch.topk`` would look at each class of each query by
itself, and take as long as the matrix product that made the similarities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError

DEFAULT_CHUNK_BYTES = 256 * 2**20
BLOCK = 16
# Below this width a tournament among all is faster than finding the right blocks first.
BLOCKS_PAY_FROM = 256
_VALUES_AT_ONCE = 2**19  # 2 MiB: with more, a tournament's later rounds wait for memory (2.3 times slower)

# Similarities of 512 queries to 4,096 rows are 8 MiB: large enough to keep the matrix product busy, small
# enough to be still in the processor's cache when the largest are looked for.
_GROUP_ROWS = 4096
_MOST_QUERIES = 512
_TEMPORARIES_PER_TILE = 8  # the similarities, and what looking for the largest of them needs
# Classes are padded to the largest of their group; this bounds the waste of memory and time.
_LARGEST_PADDING = 1.125


def unit_rows(z: Tensor) -> Tensor:
    """Return rows of ``z`` (N, d) scaled to length 1, as float32; zero rows stay zero.

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
class Group:
    """Image r of class ``classes[g]`` is row ``first + g * width + r`` of the bank."""

    classes: Tensor  # (G,) int64
    first: int
    width: int


@dataclass(frozen=True)
class Bank:
    """Unit features of M training images in P ≥ M rows; the rows in between are padding, and zero."""

    features: Tensor  # (P, d) float32, unit rows (or zero)
    image: Tensor  # (P,) int64: the image of each row in the caller's order, -1 for padding
    row_of_image: Tensor  # (M,) int64: the row of each image
    labels: Tensor  # (M,) int64, in the caller's order
    groups: tuple[Group, ...]
    num_classes: int

    @classmethod
    @torch.no_grad()
    def build(
        cls, features: Tensor, labels: Tensor, num_classes: int, ready: Callable[[Tensor], Tensor]
    ) -> Bank:
        """Lay out features (M, d) by class; ``ready`` makes unit vectors of some thousand at a time."""
        sizes = torch.bincount(labels, minlength=num_classes)
        order = torch.argsort(labels, stable=True)
        rank = torch.empty_like(order)
        rank[order] = (
            torch.arange(len(labels), device=labels.device) - (sizes.cumsum(0) - sizes)[labels[order]]
        )
        groups, first = _plan(sizes)
        row_of_image = first[labels] + rank
        rows = sum(len(group.classes) * group.width for group in groups)
        bank = torch.zeros((rows, features.shape[1]), dtype=torch.float32, device=features.device)
        for start in range(0, len(labels), _GROUP_ROWS):
            part = slice(start, start + _GROUP_ROWS)
            bank[row_of_image[part]] = ready(features[part])
        image = torch.full((rows,), -1, dtype=torch.int64, device=labels.device)
        image[row_of_image] = torch.arange(len(labels), device=labels.device)
        return cls(bank, image, row_of_image, labels, groups, num_classes)

    def query_chunks(self, count: int, per_query: int, chunk_bytes: int) -> Iterator[slice]:
        """Cut ``count`` queries so that ``per_query`` floats for each of a chunk fit the budget."""
        rows = chunk_bytes // (_TEMPORARIES_PER_TILE * 4 * max(per_query, self.features.shape[1], 1))
        rows = max(1, min(rows, _MOST_QUERIES))
        for first in range(0, count, rows):
            yield slice(first, min(first + rows, count))

    @torch.no_grad()
    def class_similarity(self, unit: Tensor, k: int, chunk_bytes: int, own: Tensor | None = None) -> Tensor:
        """Return d_c for one chunk of unit queries (n, d): (n, C), -inf where a class has no image.

        ``own`` (n,) names the row of the bank that each query is, to be left out of its neighbours.
        """
        d = unit.new_full((self.num_classes, len(unit)), -torch.inf)
        columns = unit.T.contiguous()
        rows = _rows_at_once(len(unit), chunk_bytes)
        tile = unit.new_empty((rows, len(unit)))
        for group in self.groups:
            for classes, pieces in _pieces(group, rows):
                found = []
                for first, stop in pieces:
                    similarity = self._similarity(columns, first, stop, own, tile)
                    found.append(k_largest(similarity.view(len(classes), -1, len(unit)), k))
                best = found[0] if len(found) == 1 else k_largest(torch.cat(found, dim=1), k)
                d[classes] = _mean_of_present(best) * k
        return d.T

    @torch.no_grad()
    def nearest(self, unit: Tensor, top: int, chunk_bytes: int) -> tuple[Tensor, Tensor]:
        """Return the ``top`` nearest images to unit queries (n, d), and their similarities; both (n, top)."""
        step = _rows_at_once(len(unit), chunk_bytes)
        tile = unit.new_empty((step, len(unit)))
        rows = torch.empty((len(unit), 0), dtype=torch.int64, device=unit.device)
        values = unit.new_empty((len(unit), 0))
        for first in range(0, len(self.features), step):
            stop = min(first + step, len(self.features))
            # Contiguous: the largest of each row are then found in half the time.
            similarity = self._similarity(unit.T, first, stop, None, tile).T.contiguous()
            near = similarity.topk(min(top, stop - first), dim=1)
            values = torch.cat([values, near.values], dim=1)
            rows = torch.cat([rows, near.indices + first], dim=1)
            merged = values.topk(min(top, values.shape[1]), dim=1)
            values, rows = merged.values, rows.gather(1, merged.indices)
        return self.image[rows], values.clamp(-1.0, 1.0)

    def _similarity(self, columns: Tensor, first: int, stop: int, own: Tensor | None, tile: Tensor) -> Tensor:
        """Write cosines (stop - first, n) of rows of the bank with query columns (d, n) to ``tile``.

        -inf stands for images that are not there: padding, and the query itself.
        """
        # Fresh memory for every tile would cost more in page faults than looking for the largest does.
        similarity = torch.mm(self.features[first:stop], columns, out=tile[: stop - first])
        similarity.index_fill_(0, (self.image[first:stop] < 0).nonzero()[:, 0], -torch.inf)
        if own is not None:
            here = ((own >= first) & (own < stop)).nonzero()[:, 0]
            similarity[own[here] - first, here] = -torch.inf
        return similarity


def check_bank_inputs(unit: Tensor, bank: Bank) -> None:
    """Refuse queries that have not as many dimensions as the training features."""
    if unit.shape[1] != bank.features.shape[1]:
        raise UserError(
            f"features have {unit.shape[1]} dimensions, the training features {bank.features.shape[1]}; "
            "use the same network for both"
        )


def _plan(sizes: Tensor) -> tuple[tuple[Group, ...], Tensor]:
    """Return groups for classes of sizes (C,), and the row of each class's first image."""
    by_size = torch.argsort(sizes, stable=True)
    ascending = sizes[by_size].tolist()
    groups: list[Group] = []
    first = torch.zeros_like(sizes)
    i, row = int((sizes == 0).sum()), 0  # classes without images are in no group
    while i < len(ascending):
        j = i + 1
        while j < len(ascending) and ascending[j] <= ascending[i] * _LARGEST_PADDING:
            if ascending[j] * (j + 1 - i) > _GROUP_ROWS:
                break
            j += 1
        width = ascending[j - 1]
        if width >= BLOCKS_PAY_FROM:
            width = -(-width // BLOCK) * BLOCK
        group = Group(by_size[i:j], row, width)
        first[group.classes] = row + width * torch.arange(j - i, device=sizes.device)
        groups.append(group)
        row += (j - i) * width
        i = j
    return tuple(groups), first


def _pieces(group: Group, rows: int) -> Iterator[tuple[Tensor, list[tuple[int, int]]]]:
    """Cut a group so that at most ``rows`` rows are looked at together: classes, and where their rows lie.

    Several whole classes, or one class in pieces, whose results are to be merged.
    """
    count, width = len(group.classes), group.width
    together = max(1, rows // width)
    length = rows if rows < BLOCK else rows // BLOCK * BLOCK
    for g in range(0, count, together):
        classes = group.classes[g : g + together]
        start = group.first + g * width
        end = start + len(classes) * width
        if width <= rows:
            yield classes, [(start, end)]
        else:
            yield classes, [(a, min(a + length, end)) for a in range(start, end, length)]


def _rows_at_once(queries: int, chunk_bytes: int) -> int:
    """Return how many rows' similarities to so many queries may be held: 1 to a group's."""
    return max(1, min(_GROUP_ROWS, chunk_bytes // (_TEMPORARIES_PER_TILE * 4 * max(queries, 1))))


def _mean_of_present(top: Tensor) -> Tensor:
    """Return the mean over dim 1 of the entries that are not -inf; -inf where there is none.

    Rounding can push the cosine of equal vectors past 1, hence the clamp.
    """
    present = top > -torch.inf
    total = torch.where(present, top.clamp(-1.0, 1.0), torch.zeros_like(top)).sum(dim=1)
    count = present.sum(dim=1)
    mean = total / count.clamp_min(1)
    return torch.where(count > 0, mean, torch.full_like(mean, -torch.inf))


def k_largest(values: Tensor, k: int) -> Tensor:
    """Return the k largest along dim 1 of (G, W, n), as (G, min(k, W), n), in descending order.

    >>> k_largest(torch.tensor([[[1.0], [5.0], [3.0]]]), k=2)
    tensor([[[5.],
             [3.]]])
    """
    width = values.shape[1]
    if width >= BLOCKS_PAY_FROM and width % BLOCK == 0 and 4 * k * BLOCK <= width:
        values = _keep_best_blocks(values, k)
    elif k > BLOCK:  # the tournament's lists would grow as long as what they are to save
        return values.topk(min(k, width), dim=1).values
    classes_at_once = max(1, _VALUES_AT_ONCE // max(1, values[0].numel()))
    return torch.cat([_tournament(part, k) for part in torch.split(values, classes_at_once)])


def _keep_best_blocks(values: Tensor, k: int) -> Tensor:
    """Reduce (G, W, n) to (G, 16·k, n), among which the k largest still are.

    The W values are W/16 blocks of 16, taken W/16 apart. The k largest values lie in the k blocks with the
    largest maxima: were one outside them, k blocks would each hold a value at least as large.
    """
    classes, width, queries = values.shape
    by_block = values.view(classes, BLOCK, width // BLOCK, queries)
    maxima = by_block.amax(dim=1)
    best = []
    for _ in range(k):
        best.append(maxima.max(dim=1, keepdim=True).indices)
        maxima.scatter_(1, best[-1], -torch.inf)
    index = torch.cat(best, dim=1) * queries + torch.arange(queries, device=values.device)  # (G, k, n)
    # One long dimension instead of (W/16, n): gather is then twice as fast.
    found = by_block.flatten(2).gather(2, index.view(classes, 1, -1).expand(-1, BLOCK, -1))
    return found.view(classes, BLOCK * k, queries)


def _tournament(values: Tensor, k: int) -> Tensor:
    """Merge the second half of the W into the first, all at once, until one is left.

    Each contestant is a descending list of at most k tensors.
    """
    best = [values]
    left_over: list[Tensor] = []
    while (width := best[0].shape[1]) > 1:
        half = width // 2
        if width % 2:
            left_over = merge_descending(left_over, [row[:, 2 * half] for row in best], k)
        best = merge_descending([row[:, :half] for row in best], [row[:, half : 2 * half] for row in best], k)
    return torch.stack(merge_descending([row[:, 0] for row in best], left_over, k), dim=1)


def merge_descending(a: Sequence[Tensor], b: Sequence[Tensor], k: int) -> list[Tensor]:
    """Merge two lists of tensors, descending elementwise, into one that holds the k largest of both.

    >>> three, four, two = torch.tensor([3.0]), torch.tensor([4.0]), torch.tensor([2.0])
    >>> merge_descending([three], [four, two], k=2)
    [tensor([4.]), tensor([3.])]
    """
    merged = list(a)
    for j, fallen in enumerate(b):
        for i in range(j, len(merged)):  # j values before it in b are at least as large
            risen = torch.maximum(merged[i], fallen)
            if i + 1 < k:  # what falls below the k-th is never needed
                fallen = torch.minimum(merged[i], fallen)
            merged[i] = risen
        if len(merged) < k:
            merged.append(fallen)
    return merged
