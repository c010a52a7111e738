"""Supervised contrastive loss, with the paper's denominator and the original one."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import choose

DENOMINATORS = ("negatives", "all")


def supcon(z: Tensor, labels: Tensor, temperature: float, denominator: str = "negatives") -> Tensor:
    """Return the supervised contrastive loss.

    Mean over anchors i of mean over p ∈ P(i) of −log( exp(s_ip/τ) / Σ_{k∈D(i)} exp(s_ik/τ) ).

    z: (M, d), normalized; labels: (M,). P(i): all others with i's label.
    D(i): samples of other labels (``"negatives"``, as the GradMix paper prints it) or all k ≠ i
    (``"all"``, Khosla et al. 2020). An anchor with no positive, or with nothing in D(i), is left out of
    the mean; if none is left the loss is 0 with a zero gradient.
    """
    choose("denominator", denominator, DENOMINATORS)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    same = labels[:, None] == labels[None, :]
    positive = same & ~itself
    in_denominator = ~same if denominator == "negatives" else ~itself

    count = positive.sum(1)
    usable = (count > 0) & in_denominator.any(1)
    logits = z @ z.T / temperature
    # An empty D(i) would give −inf, and its gradient NaN, even though the anchor is left out below.
    masked = logits.masked_fill(~in_denominator & usable[:, None], float("-inf"))
    mean_positive = (logits * positive).sum(1) / count.clamp(min=1)
    per_anchor = torch.logsumexp(masked, dim=1) - mean_positive
    return per_anchor.where(usable, 0.0).sum() / usable.sum().clamp(min=1)
