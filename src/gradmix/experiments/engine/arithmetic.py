"""How many steps a budget of floating-point operations holds: counted, so the same on every machine.

Counted are the matrix products and convolutions of true steps, of every stage and at every size of the views,
and of what a method prepares between its stages. Small batches stand for whole ones: all but the similarities
within a batch, about a thousandth of a step, goes with the number of images.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ...bench.methods import STEPS, StageStep
from ...data import ImageSet
from ...recipe import Recipe, make_recipe
from ...training.seeds import generator_for
from ...training.stages import PlannedStage
from .recipes import UNLIMITED_EPOCHS, digest

_IMAGES, _CLASSES = 8, 6  # of a batch
_MADE = 64  # images that some methods make between their stages: one round of them
_OF_ONE_ROUND = {"made_images": _MADE, "mix_tries": 1}


@dataclass(frozen=True)
class Arithmetic:
    """Floating-point operations of the mean step of a training, and of what is done between its stages."""

    step: float
    once: float = 0.0

    def count_steps(self, budget: float) -> int:
        """Return how many steps there are in ``budget`` operations, at least one.

        >>> Arithmetic(step=10.0, once=25.0).count_steps(100.0)
        7
        """
        return max(1, int((budget - self.once) / self.step))

    def total(self, steps: int) -> float:
        """Return the operations of a training of so many steps."""
        return self.once + steps * self.step


def limit_by_arithmetic(recipe: Recipe, budget: float) -> Recipe:
    """Return the recipe with as many steps as ``budget`` holds, unless it limits them itself."""
    s = recipe.training
    if s.max_steps is not None or s.epochs != UNLIMITED_EPOCHS:
        return recipe
    steps = count_arithmetic(recipe).count_steps(budget)
    return replace(recipe, training=replace(s, max_steps=steps))


_counted: dict[str, Arithmetic] = {}


def count_arithmetic(recipe: Recipe) -> Arithmetic:
    """Count the operations of a training by ``recipe``; recipes that cost the same are counted once."""
    views = {name: getattr(recipe.views, name) for name in _SIZES}
    plain = {**dataclasses.asdict(recipe.objective), **dataclasses.asdict(recipe.model), **views}
    plain |= {"method": recipe.method, "batch_size": recipe.training.batch_size}
    key = digest(plain)
    if key not in _counted:
        _counted[key] = _count(make_recipe(plain))
    return _counted[key]


_SIZES = ("image_size", "start_size", "grow_after", "grow_until", "channels")


def _count(recipe: Recipe) -> Arithmetic:
    objective = dataclasses.asdict(recipe.objective)
    rounds = max(1.0, objective.get("made_images", 0) / _MADE)
    few = make_recipe(recipe.flat() | {n: v for n, v in _OF_ONE_ROUND.items() if n in objective})
    images = _make_images(recipe)
    step = once = 0.0
    for number in range(len(StageStep(few, images, 0).stages)):
        with Operations() as preparing:
            first = StageStep(few, images, number)
        once += rounds * preparing.total
        for size, share in share_sizes(first.planned, STEPS).items():
            first.size = size
            period = first.method.period
            with Operations() as counter:
                for _ in range(period):
                    first()
            step += share * counter.total / period
    return Arithmetic(step * recipe.training.batch_size / _IMAGES, once)


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, adds up the floating-point operations of matrix products and convolutions, both ways.

    As torch's own ``FlopCounterMode``, which also follows modules, and so refuses a gradient of a gradient.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        count = flop_registry.get(func.overloadpacket)
        if count is not None:
            self.total += count(*args, **(kwargs or {}), out_val=result)
        return result


def share_sizes(planned: PlannedStage, total: int) -> dict[int, float]:
    """Return the sides of a stage's views, each with its share of all ``total`` steps."""
    found: dict[int, float] = {}
    until = 0.0
    for size, share in planned.views.sizes().items():
        start, until = until, until + share
        within = min(planned.end / total, until) - max(planned.start / total, start)
        if within > 1e-9:
            found[size] = within
    return found


def _make_images(recipe: Recipe) -> ImageSet:
    shape = (_IMAGES, recipe.views.channels, recipe.views.image_size, recipe.views.image_size)
    pixels = torch.randint(0, 256, shape, generator=generator_for(0, "arithmetic")).to(torch.uint8)
    return ImageSet(pixels, torch.arange(_IMAGES) % _CLASSES, tuple("abcdef"))
