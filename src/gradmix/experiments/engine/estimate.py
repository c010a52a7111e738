"""How long it will take here: two true steps of every kind of training, timed on this machine.

Of a training in stages, a step of the longest stage stands for all; what a method prepares between its stages
(counterfactual images, say) is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...bench.methods import StageStep
from ...data import ImageSet
from ...training import Recipe

_BATCH_OF_LARGE = 16  # a full batch through ResNet18 takes a CPU half a minute; time goes with its size
_COSTLY = (
    "method",
    "mixer",
    "theta",
    "lam",
    "pairing",
    "target",
    "image_size",
    "start_size",
    "grow_after",
    "grow_until",
    "channels",
    "encoder",
    "stem",
    "batch_size",
    "device",
    "precision",
)


@dataclass(frozen=True)
class Workload:
    """A training that is still to be done."""

    recipe: Recipe
    steps: int
    sample: ImageSet


def get_step_kind(recipe: Recipe) -> tuple[tuple[str, Any], ...]:
    """Return the fields that a step's time depends on; of loss weights, only whether they are zero."""
    values = recipe.flat()
    return tuple(
        (name, bool(values[name]) if name in ("theta", "lam") else values[name])
        for name in _COSTLY
        if name in values
    )


@dataclass(frozen=True)
class Duration:
    """Seconds on the clock, and of processor time on all cores, which other programs change less."""

    seconds: float
    core_seconds: float

    def times(self, count: float) -> Duration:
        return Duration(self.seconds * count, self.core_seconds * count)


def measure_step(recipe: Recipe, images: ImageSet) -> Duration:
    """Time one training step: the second and third of three, on a few of the ``images``.

    Where views grow, the mean over their sizes.
    """
    batch = recipe.training.batch_size
    timed = batch if recipe.model.encoder.startswith(("resnet8", "resnet10")) else min(batch, _BATCH_OF_LARGE)
    timed = min(timed, len(images))
    step = StageStep(recipe, images.select(torch.arange(timed)))
    seconds = core_seconds = 0.0
    for size, share in step.planned.views.sizes().items():
        step.size = size
        step()
        started, used = time.perf_counter(), time.process_time()
        step()
        step()
        seconds += share * (time.perf_counter() - started) / 2
        core_seconds += share * (time.process_time() - used) / 2
    return Duration(seconds, core_seconds).times(min(batch, len(images)) / timed)


def estimate_durations(work: Mapping[str, Workload], advance: Any = None) -> dict[str, Duration]:
    """Estimate how long each training takes, by key; trainings of one kind are timed once."""
    per_step: dict[tuple[tuple[str, Any], ...], Duration] = {}
    found = {}
    for key, one in work.items():
        kind = get_step_kind(one.recipe)
        if kind not in per_step:
            per_step[kind] = measure_step(one.recipe, one.sample)
        if advance:
            advance()
        found[key] = per_step[kind].times(one.steps)
    return found


def format_duration(seconds: float) -> str:
    """Format a duration in words, rounded to one unit.

    >>> format_duration(40), format_duration(1500), format_duration(90_000)
    ('40 seconds', '25 minutes', '25 hours')
    """
    if seconds < 100:
        return "1 second" if round(seconds) == 1 else f"{seconds:.0f} seconds"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 100 * 3600 else f"{seconds / 86400:.0f} days"
