"""The contrastive losses as plain loops over anchors, term by term from their equations.

Everything is a Python loop over scalar tensors, so autograd of these is an independent gradient too.
"""

from __future__ import annotations

import torch
from torch import Tensor


def nt_xent(z1: Tensor, z2: Tensor, temperature: float, weight: Tensor | None = None) -> Tensor:
    n = len(z1)
    z = [*z1, *z2]
    total = z1.new_zeros(())
    for i in range(2 * n):
        j = (i + n) % (2 * n)
        denominator = sum(_kernel(z[i], z[k], temperature) for k in range(2 * n) if k != i)
        loss = -torch.log(_kernel(z[i], z[j], temperature) / denominator)
        total = total + loss * (1 if weight is None else weight[i % n])
    return total / (2 * n)


def nt_xent_one_way(
    anchor: Tensor, other: Tensor, temperature: float, weight: Tensor | None = None
) -> Tensor:
    n = len(anchor)
    z = [*anchor, *other]
    total = anchor.new_zeros(())
    for i in range(n):
        denominator = sum(_kernel(z[i], z[k], temperature) for k in range(2 * n) if k != i)
        loss = -torch.log(_kernel(z[i], other[i], temperature) / denominator)
        total = total + loss * (1 if weight is None else weight[i])
    return total / n


def nt_xent_clean_negatives(
    anchor: Tensor, positive: Tensor, other: Tensor, temperature: float, weight: Tensor | None = None
) -> Tensor:
    n = len(anchor)
    total = anchor.new_zeros(())
    for i in range(n):
        pull = _kernel(anchor[i], positive[i], temperature)
        push = anchor.new_zeros(())
        for k in range(n):
            if k != i:
                push = push + _kernel(anchor[i], anchor[k], temperature)
                push = push + _kernel(anchor[i], other[k], temperature)
        total = total - torch.log(pull / (pull + push)) * (1 if weight is None else weight[i])
    return total / n


def supcon(z: Tensor, labels: Tensor, temperature: float, denominator: str) -> Tensor:
    m = len(z)
    losses = []
    for i in range(m):
        positives = [p for p in range(m) if p != i and labels[p] == labels[i]]
        if denominator == "negatives":
            contrasted = [k for k in range(m) if labels[k] != labels[i]]
        else:
            contrasted = [k for k in range(m) if k != i]
        if not positives or not contrasted:
            continue
        below = sum(_kernel(z[i], z[k], temperature) for k in contrasted)
        terms = [-torch.log(_kernel(z[i], z[p], temperature) / below) for p in positives]
        losses.append(sum(terms) / len(terms))
    return sum(losses) / len(losses) if losses else 0 * z.sum()


def _kernel(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """exp(s/τ), s the dot product of two normalised vectors."""
    return torch.exp((a * b).sum() / temperature)


def soft_supcon(z: Tensor, targets: Tensor, temperature: float) -> Tensor:
    m, losses = len(z), []
    for i in range(m):
        others = [j for j in range(m) if j != i]
        weight = {j: targets[i] @ targets[j] / (targets[i].norm() * targets[j].norm()) for j in others}
        total = sum(float(w) for w in weight.values())
        if total <= 0:
            continue
        denominator = sum(_kernel(z[i], z[k], temperature) for k in others)
        terms = [weight[j] * torch.log(_kernel(z[i], z[j], temperature) / denominator) for j in others]
        losses.append(-torch.stack(terms).sum() / total)
    return torch.stack(losses).mean() if losses else z.sum() * 0
