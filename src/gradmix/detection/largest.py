"""The k largest of each row, by a few operations on large tensors rather than a search of each row.

Values are (G, W, n): for each of G classes and n queries, the similarities to the class's W images. Queries
come last, so that every operation runs along contiguous memory. ``torch.topk`` would look at each class of
each query by itself, and take as long as the matrix product that made the similarities.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 16
# Below this width a tournament among all is faster than finding the right blocks first.
BLOCKS_PAY_FROM = 256
_VALUES_AT_ONCE = 2**19  # 2 MiB: with more, a tournament's later rounds wait for memory (2.3 times slower)


def k_largest(values: Tensor, k: int) -> Tensor:
    """The k largest along dim 1 of (G, W, n), as (G, min(k, W), n), in descending order.

    >>> k_largest(torch.tensor([[[1.0], [5.0], [3.0]]]), k=2)
    tensor([[[5.],
             [3.]]])
    """
    width = values.shape[1]
    if width >= BLOCKS_PAY_FROM and width % BLOCK == 0 and 4 * k * BLOCK <= width:
        values = _in_the_best_blocks(values, k)
    elif k > BLOCK:  # the tournament's lists would grow as long as what they are to save
        return values.topk(min(k, width), dim=1).values
    classes_at_once = max(1, _VALUES_AT_ONCE // max(1, values[0].numel()))
    return torch.cat([_tournament(part, k) for part in torch.split(values, classes_at_once)])


def _in_the_best_blocks(values: Tensor, k: int) -> Tensor:
    """(G, W, n) to (G, 16·k, n), among which the k largest still are.

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
    """The second half of the W is merged into the first, all at once, until one is left.

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
    """Two lists of tensors, descending elementwise, into one that holds the k largest of both.

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
