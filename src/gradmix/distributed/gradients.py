"""Gradients of a batch that several processes share, so that a method reads as if there were one process.

Each process embeds its own n of the N rows, :func:`gather_rows` gives every process the embeddings of all N,
and everything after it (heads, centres, losses) is computed by every process alike. On the way back
:func:`gather_rows` hands each process the gradient of its own rows times the number of processes p, and at
the end of the step :func:`average_gradients` takes the mean over the processes. Then

    a parameter before the gather (encoder) has   1/p · Σ_processes p · (own rows' part) = the sum over rows
    a parameter after it (head, centres)    has   1/p · Σ_processes (the whole gradient) = the whole gradient
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .process_group import ProcessGroup


def gather_rows(own: Tensor, group: ProcessGroup) -> Tensor:
    """Return the (N, …) rows of all processes from the (n, …) of each; the module tells the gradient."""
    if group.size == 1:
        return own
    if own.requires_grad:
        own = _ScaleGradient.apply(own, float(group.size))  # type: ignore[no-untyped-call]
    return group.all_gather(own)


def permute_rows(own: Tensor, order: Tensor, group: ProcessGroup) -> Tensor:
    """Return rows ``order`` of the whole batch, those that replace one's own, with the gradient of all.

    ``order``: (N,), on the CPU, a permutation: each row's gradient comes back from the one place it went to.
    """
    if group.size == 1:
        return own[order.to(own.device)]
    permuted: Tensor = _PermuteRows.apply(own, order, group)  # type: ignore[no-untyped-call]
    return permuted


def average_gradients(parameters: Iterable[nn.Parameter], group: ProcessGroup) -> None:
    """Replace the parameters' ``.grad`` by their means over the processes: one reduction for all of them."""
    if group.size > 1:
        average([p.grad for p in parameters if p.grad is not None], group)


def average(tensors: list[Tensor], group: ProcessGroup) -> None:
    """Replace each tensor by its mean over the processes."""
    if group.size > 1 and tensors:
        group.all_reduce_(tensors)
        for tensor in tensors:
            tensor /= group.size


class _ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by ``factor``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


class _PermuteRows(torch.autograd.Function):
    """Rows to other processes; their gradients take the way back."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, order: Tensor, group: ProcessGroup) -> Tensor:
        ctx.order, ctx.group = order, group
        return group.exchange_rows(own, order)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.group.exchange_rows(gradient, torch.argsort(ctx.order)), None, None
