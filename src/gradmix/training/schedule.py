"""The learning rate as a function of the step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from ..errors import UserError
from ..recipe import TrainingSettings


def learning_rate(step: int, total: int, settings: TrainingSettings) -> float:
    """Return the learning rate of a step; before ``warmup_steps`` on the straight line to what it is then.

    - ``cosine``: lr_min + (lr − lr_min)·½(1 + cos(π·t)), t from 0 after the warm-up to 1 after the last step
    - ``step``: lr·gamma^(number of milestones passed)
    - ``restarts``: one cosine after the other, each ``cycle_growth`` times as long as the one before

    With ``schedule_stretch`` it is the schedule of so many times the steps, of which the last are not taken:
    cycles of 10, 20, … 320 epochs are 630, and 600 epochs of them end inside the last one.

    >>> s = TrainingSettings(lr=1.0, lr_min=0.0)
    >>> [round(learning_rate(i, 4, s), 3) for i in (0, 2, 4)]
    [1.0, 0.5, 0.0]
    >>> s = TrainingSettings(lr=1.0, schedule="step", milestones=(0.5, 0.75))
    >>> [round(learning_rate(i, 8, s), 3) for i in (0, 3, 4, 6)]
    [1.0, 1.0, 0.1, 0.01]
    >>> s = TrainingSettings(lr=1.0, lr_min=0.0, schedule="restarts", restarts=1, cycle_growth=3.0)
    >>> [round(learning_rate(i, 16, s), 3) for i in (0, 2, 4, 10, 16)]
    [1.0, 0.5, 1.0, 0.5, 0.0]
    """
    warmup, length = settings.warmup_steps, total * settings.schedule_stretch
    if step < warmup:
        return _without_warmup(warmup, length, settings) * (step + 1) / (warmup + 1)
    return _without_warmup(step, length, settings)


def _without_warmup(step: int, total: float, s: TrainingSettings) -> float:
    if s.schedule == "step":
        return s.lr * s.gamma ** sum(step >= round(share * total) for share in s.milestones)
    if s.schedule == "restarts":
        t = _cycle_progress(step / max(1, total), s.restarts + 1, s.cycle_growth)
    else:
        t = (step - s.warmup_steps) / max(1, total - s.warmup_steps)
    return s.lr_min + (s.lr - s.lr_min) * 0.5 * (1 + math.cos(math.pi * min(1.0, t)))


def _cycle_progress(done: float, cycles: int, growth: float) -> float:
    """Return which share of its current cycle is done when ``done`` of all cycles is."""
    lengths = [growth**i for i in range(cycles)]
    start = 0.0
    for i, length in enumerate(lengths):
        length /= sum(lengths)
        if done < start + length - 1e-9 or i == cycles - 1:
            return (done - start) / length
        start += length
    return 1.0


def make_optimizer(parameters: Sequence[nn.Parameter], settings: TrainingSettings) -> torch.optim.Optimizer:
    """Return the settings' optimizer; the fused kernels do one pass instead of dozens."""
    if not parameters:
        raise UserError("there is nothing to train: no parameter wants a gradient")
    fused = parameters[0].device.type in ("cpu", "cuda")
    lr, decay = settings.lr, settings.weight_decay
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr, settings.betas, weight_decay=decay, fused=fused)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=lr,
            momentum=settings.momentum,
            nesterov=settings.nesterov and settings.momentum > 0,
            weight_decay=decay,
            fused=fused,
        )
    return torch.optim.Adam(parameters, lr, settings.betas, weight_decay=decay, fused=fused)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
