"""BatchNorm over the whole batch of several processes.

torch's own SyncBatchNorm runs on GPUs only; this one runs wherever the process group does, costs one
reduction of 2·C numbers each way, and keeps every parameter's and buffer's name.

With N values per channel in the whole batch, μ and σ² their mean and variance,
x̂ = (x − μ)/√(σ² + ε), y = w·x̂ + b:

    ∂L/∂x = w/√(σ² + ε) · ( ∂L/∂y − mean(∂L/∂y) − x̂·mean(∂L/∂y · x̂) ),   means over the whole batch

∂L/∂w and ∂L/∂b are left as the sums over the own rows, like every other parameter's: they are added up
with the rest at the end of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .process_group import ProcessGroup

STATISTICS = ("sync", "local")


class SyncedBatchNorm(_BatchNorm):
    """A BatchNorm that, in training, takes its statistics over all processes' rows of the batch."""

    group: ProcessGroup

    @staticmethod
    def from_plain(plain: _BatchNorm, group: ProcessGroup) -> SyncedBatchNorm:
        """Return one with the same parameters and buffers, under the same names."""
        made = SyncedBatchNorm(plain.num_features, plain.eps, plain.momentum, plain.affine)
        made.group = group
        made.train(plain.training)
        for name, parameter in plain.named_parameters(recurse=False):
            setattr(made, name, parameter)
        for name, buffer in plain.named_buffers(recurse=False):
            setattr(made, name, buffer)
        return made

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        y: Tensor
        y, mean, variance = _Normalize.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, self.eps, self.group
        )
        with torch.no_grad():
            count = x.numel() // x.shape[1] * self.group.size
            assert self.momentum is not None
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
            self.running_var.lerp_(variance.to(self.running_var) * count / (count - 1), self.momentum)
            self.num_batches_tracked += 1
        return y

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any (N, C, …)."""


class _Normalize(torch.autograd.Function):
    """x (n, C, …) ↦ (y, μ, σ²), the statistics of all processes' x together; see the module."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, group: ProcessGroup
    ) -> tuple[Tensor, Tensor, Tensor]:
        own_mean, own_variance = _moments(x)
        # (mean, mean square) add up; in float64 the difference of the sums loses nothing.
        moments = torch.stack([own_mean, own_variance + own_mean**2]) / group.size
        group.all_reduce_([moments])
        mean = moments[0].to(weight.dtype)
        variance = (moments[1] - moments[0] ** 2).clamp(min=0).to(weight.dtype)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.group = eps, group
        y = nn.functional.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        # The kernel of the normalization by *given* statistics: w/√(σ²+ε)·∂y, Σ ∂y·x̂ and Σ ∂y.
        dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            dy, x, weight, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        count = x.numel() // x.shape[1] * ctx.group.size
        sums = torch.stack([dweight, dbias])
        ctx.group.all_reduce_([sums])
        # What is missing: −w/√(σ²+ε)·(mean(∂y) + x̂·mean(∂y·x̂)), a map of x by channel: a normalization.
        gain = -weight * (variance + ctx.eps).rsqrt() / count
        dx += nn.functional.batch_norm(
            x, mean, variance, gain * sums[0], gain * sums[1], False, 0.0, ctx.eps
        ).to(dx)
        return dx, dweight, dbias, None, None


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return (mean, biased variance) of every channel of x (n, C, …), as float64."""
    if x.device.type == "cpu":  # ten times faster than var_mean there, and the kernel of plain BatchNorm
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
    else:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        variance, mean = torch.var_mean(wide, [d for d in range(x.dim()) if d != 1], correction=0)
    return mean.double(), variance.double()


def synchronize(network: nn.Module, group: ProcessGroup) -> None:
    """Make every BatchNorm of ``network`` one over the whole batch, in place; nothing in one process."""
    if group.size == 1:
        return
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm) and not isinstance(child, SyncedBatchNorm):
                setattr(parent, name, SyncedBatchNorm.from_plain(child, group))


def statistics_are_local(network: nn.Module) -> bool:
    """Return whether some BatchNorm sees its own process's rows only."""
    return any(isinstance(m, _BatchNorm) and not isinstance(m, SyncedBatchNorm) for m in network.modules())


def average_statistics(network: nn.Module, group: ProcessGroup) -> None:
    """Replace running statistics by their means over the processes, on every one of them.

    A running statistic is linear in those of the batches: when and how often this is done makes no
    difference. Nothing to do in one process, nor where the statistics are those of the whole batch anyway.
    """
    if group.size == 1 or not statistics_are_local(network):
        return
    running = [b for m in network.modules() if isinstance(m, _BatchNorm) for b in _running(m)]
    for module in network.modules():  # a second set of statistics: gradmix.models.Domain
        second: Callable[[], list[Tensor]] | None = getattr(module, "running_buffers", None)
        running += second() if second else []
    for buffer in running:
        buffer /= group.size
    group.all_reduce_(running)


def _running(module: _BatchNorm) -> list[Tensor]:
    return [b for b in (module.running_mean, module.running_var) if b is not None]
