"""Supervised contrastive loss with soft labels (ConOSR)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def soft_supcon(z: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss of embeddings whose labels are distributions.

    Mean over anchors i of −Σ_{j≠i} w_ij log( exp(s_ij/τ) / Σ_{k≠i} exp(s_ik/τ) ) / Σ_{j≠i} w_ij,
    with w_ij = cos(t_i, t_j): every pair attracts, by how much its labels agree.

    z: (M, d), normalized; targets t: (M, K), rows not negative. Xu et al. 2023. With one-hot targets this is
    SupCon with the denominator ``"all"``. An anchor that agrees with nobody is left out of the mean; if none
    is left the loss is 0 with a zero gradient.

    >>> z = F.normalize(torch.ones(4, 8), dim=1)
    >>> bool(torch.isclose(soft_supcon(z, torch.rand(4, 3), 0.5), torch.tensor(3.0).log()))  # log(M - 1)
    True
    """
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    unit = F.normalize(targets.to(z.dtype), dim=1)
    weight = (unit @ unit.T).masked_fill(itself, 0.0)  # (M, M)
    total = weight.sum(1)
    usable = total > 0
    logits = z @ z.T / temperature
    among_others = torch.logsumexp(logits.masked_fill(itself & usable[:, None], float("-inf")), dim=1)
    per_anchor = among_others - (weight * logits).sum(1) / total.where(usable, 1.0)
    return per_anchor.where(usable, 0.0).sum() / usable.sum().clamp(min=1)
