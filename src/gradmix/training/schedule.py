"""The learning rate as a function of the step."""

from __future__ import annotations

import math

import torch
from torch import nn

from .settings import TrainingSettings


def learning_rate(step: int, total: int, settings: TrainingSettings) -> float:
    """lr_min + (lr − lr_min)·½(1 + cos(π·t)), t from 0 at the first step to 1 after the last.

    >>> s = TrainingSettings(lr=1.0, lr_min=0.0)
    >>> [round(learning_rate(i, 4, s), 3) for i in (0, 2, 4)]
    [1.0, 0.5, 0.0]
    """
    if step < settings.warmup_steps:
        return settings.lr * (step + 1) / (settings.warmup_steps + 1)
    t = (step - settings.warmup_steps) / max(1, total - settings.warmup_steps)
    return settings.lr_min + (settings.lr - settings.lr_min) * 0.5 * (1 + math.cos(math.pi * min(1.0, t)))


def make_optimizer(network: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Over all parameters; the fused kernels do one pass instead of dozens."""
    parameters = list(network.parameters())
    fused = parameters[0].device.type in ("cpu", "cuda")
    lr, decay = settings.lr, settings.weight_decay
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=decay, fused=fused)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=lr, momentum=0.9, nesterov=True, weight_decay=decay, fused=fused
        )
    return torch.optim.Adam(parameters, lr=lr, weight_decay=decay, fused=fused)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
