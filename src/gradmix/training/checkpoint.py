"""The state of a training: saving it, and restoring it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ..distributed import ProcessGroup
from ..errors import UserError, first_line
from ..methods import Method
from .clock import Clock
from .run_folder import RunFolder
from .schedule import make_optimizer
from .stages import Freezer, PlannedStage


class LossSums:
    """Sums of the losses since the last row of the history; part of the saved state.

    A loss that not every step has is averaged over those that have it: ``counts`` says how many.
    """

    def __init__(self, sums: dict[str, float] | None = None, count: int = 0) -> None:
        self.sums, self.count = sums or {}, count
        self.counts = dict.fromkeys(self.sums, count)

    def add(self, values: dict[str, float]) -> None:
        """Count one step's losses."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1
        self.count += 1

    def take(self) -> dict[str, float]:
        """Return the means, and start again."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.count = {}, 0
        self.counts = {}
        return means


class TrainingState:
    """All that the next step depends on: method, optimizer, scaler, step and stage."""

    def __init__(self, method: Method, stages: list[PlannedStage], scaler: torch.amp.GradScaler) -> None:
        """Start at the first step of the first stage."""
        self.method, self.stages, self.scaler = method, stages, scaler
        self.freezer = Freezer(method, stages)
        self.step = 0
        self.pending, self.clock = LossSums(), Clock()
        self.enter(0)

    @property
    def stage(self) -> PlannedStage:
        """The stage that this is in."""
        return self.stages[self.number]

    def enter(self, number: int) -> None:
        """Begin a stage with an optimizer of its own; ``begun`` is left for the caller to set."""
        self.number, self.begun = number, False
        self.parameters: list[nn.Parameter] = self.freezer.enter(self.stage.stage)
        self.optimizer = make_optimizer(self.parameters, self.stage.settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as tensors, numbers and dictionaries."""
        return {
            "step": self.step,
            "stage": self.number,
            "begun": self.begun,
            "minutes": self.clock.minutes,
            "core_minutes": self.clock.core_minutes,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "pending": self.pending.sums,
            "pending_count": self.pending.count,
            "pending_counts": self.pending.counts,
        }

    def restore(self, saved: Mapping[str, Any], file: object) -> None:
        """Put back what :meth:`to_dict` gave; ``file`` names its origin in errors."""
        try:
            state = saved if saved.get("format", 2) == 2 else from_format_1(saved)
            self.enter(range(len(self.stages))[int(state["stage"])])
            resize_empty_buffers(self.method, state["method"])
            self.method.load_state_dict(state["method"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
            self.pending = LossSums(dict(state["pending"]), int(state["pending_count"]))
            self.pending.counts |= state.get("pending_counts", {})
            self.step, self.begun = int(state["step"]), bool(state["begun"])
            self.clock.resume_from(float(state["minutes"]), float(state.get("core_minutes", 0.0)))
        except (KeyError, IndexError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{file} does not belong to this run's recipe: {first_line(error)}") from error


def from_format_1(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state of version 0.1 (network and MoCo's state side by side, one stage) as one of today."""
    method = {f"network.{name}": value for name, value in saved["network"].items()}
    for name, value in saved.get("method", {}).items():  # before MoCo no method had any
        method[f"key_network.{name.removeprefix('key.')}" if name.startswith("key.") else name] = value
    return {**saved, "method": method, "stage": 0, "begun": True}


def resize_empty_buffers(method: Method, state: Mapping[str, Any]) -> None:
    """Give buffers that are empty in a new method the size they have in the state: ``begin`` filled them."""
    for path, module in method.named_modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            saved = state.get(f"{path}.{name}" if path else name)
            if isinstance(saved, torch.Tensor) and not buffer.numel() and saved.numel():
                setattr(module, name, torch.empty_like(saved, device=buffer.device))


def load_start_state(
    run: RunFolder | None, fresh: Callable[[], dict[str, Any]], group: ProcessGroup
) -> dict[str, Any] | None:
    """Return the state to start from: what rank 0 finds in its run folder, sent to all.

    So no disk need be shared. None for a new run in one process. Several start a new run from ``fresh()`` of
    rank 0: machines of different make need not draw the same initial weights to the last bit.
    """
    with group.raise_together():
        state = run.load_state() if run else None
    if group.size == 1:
        return state
    return broadcast_state(lambda: state or fresh(), group)


def broadcast_state(make: Callable[[], Mapping[str, Any]], group: ProcessGroup) -> dict[str, Any]:
    """Return the tensors and numbers that ``make`` gives on rank 0."""
    file = io.BytesIO()
    if group.rank == 0:
        torch.save(make(), file)
    content = group.broadcast_bytes(file.getvalue())
    sent: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return sent
