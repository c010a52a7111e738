"""Several batches through the network in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .interface import Method


def embed_together(method: Method, parts: Sequence[Tensor]) -> list[Tensor]:
    """Return the embeddings (N, d) of the whole batch for each of ``parts``, given one's own rows of them.

    One pass: BatchNorm sees all parts at once, so that none of them has statistics of its own.
    """
    own, size = len(parts[0]), method.context.group.size
    images = torch.cat(list(parts)).contiguous(memory_format=torch.channels_last)
    z = method.embed(images)  # (processes · parts · own rows, d)
    by_part = z.view(size, len(parts), own, -1).transpose(0, 1)
    return list(by_part.reshape(len(parts), size * own, -1))
