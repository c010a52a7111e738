"""InfoNCE with a queue of negatives (MoCo)."""

from __future__ import annotations

import torch
from torch import Tensor


def info_nce(
    query: Tensor, key: Tensor, queue: Tensor, temperature: float, weight: Tensor | None = None
) -> Tensor:
    """Return the InfoNCE loss with a queue of negatives.

    Mean over i of −log( e^{q_i·k_i/τ} / (e^{q_i·k_i/τ} + Σ_j e^{q_i·n_j/τ}) ), n_j the rows of the queue.

    query, key: (N, d); queue: (K, d); all normalized. He et al. 2020, eq. 1. The other images of the batch
    are no negatives here: only the queue is. ``weight`` (N,) scales each query's term and does not
    renormalize the mean, as in NT-Xent.

    >>> z = torch.nn.functional.normalize(torch.ones(9, 8), dim=1)
    >>> bool(torch.isclose(info_nce(z[:2], z[:2], z, 0.5), torch.tensor(10.0).log()))  # all equal: log(1 + K)
    True
    """
    to_key = (query * key).sum(1, keepdim=True)
    logits = torch.cat([to_key, query @ queue.T], dim=1) / temperature  # (N, 1 + K)
    per_query = torch.logsumexp(logits, dim=1) - logits[:, 0]
    return per_query.mean() if weight is None else (weight * per_query).mean()
