"""Runs that are stopped after a step and go on: what they save must be what an undisturbed run saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradmix.data import ImageSet
from gradmix.training import Interrupted, Recipe, RunFolder, session, train


def stop_after(monkeypatch: pytest.MonkeyPatch, *steps: int) -> None:
    """Ask to stop after these steps, as a signal would."""
    counter = [0]
    take = session.set_learning_rate

    def counting(optimizer: torch.optim.Optimizer, lr: float) -> None:
        counter[0] += 1
        take(optimizer, lr)

    @contextmanager
    def requests() -> Iterator[Callable[[], bool]]:
        yield lambda: counter[0] in steps

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no TensorBoard: it takes seconds
    monkeypatch.setattr(session, "stop_requests", requests)
    monkeypatch.setattr(session, "set_learning_rate", counting)


def saved(run: RunFolder) -> dict[str, Any]:
    state = run.load_state()
    assert state is not None
    return {name: part for name, part in state.items() if "minutes" not in name}


def assert_equal_bits(one: Any, other: Any, where: str = "state") -> None:
    assert type(one) is type(other), where
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype, where
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_equal_bits(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal_bits(a, b, f"{where}.{i}")
    else:
        assert one == other, where


def train_whole_and_stopped(
    images: ImageSet, recipe: Recipe, stop: int, folder: Path, monkeypatch: pytest.MonkeyPatch, steps: int = 6
) -> tuple[RunFolder, RunFolder]:
    """Train undisturbed, and again with a stop after step ``stop``; all that is saved is the same."""
    whole = RunFolder.create(folder / "whole", recipe, {})
    stopped = RunFolder.create(folder / "stopped", recipe, {})
    stop_after(monkeypatch, steps + stop)  # the whole run's steps come first
    assert train(images, recipe, whole).steps == steps
    with pytest.raises(Interrupted, match=f"after step {stop} of {steps}"):
        train(images, recipe, stopped)
    train(images, recipe, stopped)
    assert_equal_bits(saved(whole), saved(stopped))
    return whole, stopped
