"""NT-Xent (SimCLR) and the two ways in which a mixed view enters it.

Letters: N images, d embedding dimensions; every input is L2-normalized along d, so a dot product is
the cosine s. ``weight`` (N,) scales each image's terms and does not renormalize the mean: with one γ
for the whole batch the result is γ²·L, as the paper prints it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def nt_xent(z1: Tensor, z2: Tensor, temperature: float, weight: Tensor | None = None) -> Tensor:
    """Return the NT-Xent loss of two views.

    Mean over all 2N anchors i of −log( exp(s_ij/τ) / Σ_{k≠i} exp(s_ik/τ) ), j the other view of i.

    z1, z2: (N, d), normalized. Chen et al. 2020, eq. 1.

    >>> z = torch.nn.functional.normalize(torch.ones(4, 8), dim=1)
    >>> bool(torch.isclose(nt_xent(z, z, 0.5), torch.tensor(7.0).log()))  # all equal: log(2N - 1)
    True
    """
    anchors = torch.cat([z1, z2])
    per_anchor = _cross_entropy(anchors, anchors, _other_view(len(z1), z1.device), temperature)
    return _weighted_mean(per_anchor, None if weight is None else weight.repeat(2))


def nt_xent_one_way(
    anchor: Tensor, other: Tensor, temperature: float, weight: Tensor | None = None
) -> Tensor:
    """Return NT-Xent over the 2N embeddings {anchor, other}, with only the first N as anchors.

    Mean over i < N of −log( exp(s_ij/τ) / Σ_{k≠i} exp(s_ik/τ) ), k over all 2N. With ``anchor`` the
    mixed first views and ``other`` the clean second ones this is the pairing "cross".
    """
    candidates = torch.cat([anchor, other])
    positive = _other_view(len(anchor), anchor.device)[: len(anchor)]
    return _weighted_mean(_cross_entropy(anchor, candidates, positive, temperature), weight)


def nt_xent_clean_negatives(
    anchor: Tensor, positive: Tensor, other: Tensor, temperature: float, weight: Tensor | None = None
) -> Tensor:
    """Return NT-Xent with a mixed positive and clean negatives.

    Mean over i of −log( e^{a_i·p_i/τ} / (e^{a_i·p_i/τ} + Σ_{k≠i} (e^{a_i·a_k/τ} + e^{a_i·o_k/τ})) ).

    ``anchor`` a and ``other`` o are the two clean views, ``positive`` p the mixed version of ``other``:
    the positive is mixed, every negative is clean. Applied both ways this is the pairing "symmetric".
    """
    n = len(anchor)
    own = torch.eye(n, dtype=torch.bool, device=anchor.device)
    to_positive = (anchor * positive).sum(1, keepdim=True)
    to_anchors = (anchor @ anchor.T).masked_fill(own, float("-inf"))
    to_others = (anchor @ other.T).masked_fill(own, float("-inf"))
    logits = torch.cat([to_positive, to_anchors, to_others], dim=1) / temperature
    return _weighted_mean(torch.logsumexp(logits, dim=1) - logits[:, 0], weight)


def _cross_entropy(anchors: Tensor, candidates: Tensor, positive: Tensor, temperature: float) -> Tensor:
    """Return the losses (A,) of anchors, the first A candidates; ``positive`` indexes the candidates."""
    logits = anchors @ candidates.T / temperature
    logits.diagonal().fill_(float("-inf"))  # an anchor is not its own candidate
    return torch.nn.functional.cross_entropy(logits, positive, reduction="none")


def _other_view(n: int, device: torch.device) -> Tensor:
    return torch.arange(2 * n, device=device).roll(n)


def _weighted_mean(per_anchor: Tensor, weight: Tensor | None) -> Tensor:
    return per_anchor.mean() if weight is None else (weight * per_anchor).mean()
