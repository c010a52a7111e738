"""What a training step of every method costs, next to one of cross-entropy, and what it should cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..data import ImageSet
from ..errors import UserError, choose
from ..machine import reuse_freed_memory
from ..methods import METHODS, Progress, Views
from ..recipe import Recipe, field_names, make_recipe, read_recipe_values, recipe_names
from ..training.fit_normalizer import fit_normalizer
from ..training.hardware import pick_device
from ..training.schedule import make_optimizer
from ..training.seeds import generator_for
from ..training.session import build_method, channels_last
from ..training.stages import Freezer, plan_stages
from ..views import Augment
from .rounds import Timing, take_turns
from .step import StepSettings

REFERENCE = "ce"
_COSTLIEST: dict[str, dict[str, object]] = {"arpl-cs": {"confuse_every": 1}}  # of steps that differ
STEPS = 1000  # of the training of which one step is timed; stages divide it


@dataclass(frozen=True)
class MethodTiming:
    """``timing`` of a step, its ratio to the one of cross-entropy, and the ratio that its passes predict."""

    timing: Timing
    predicted: float


class StageStep:
    """Whole training steps of one stage of a method, on one batch."""

    def __init__(self, recipe: Recipe, batch: ImageSet, number: int | None = None) -> None:
        """``number`` is the stage's; None: that of the stage that has most of the steps.

        ``size``, to be set: the side of the views, if it is not the recipe's.
        """
        self.size: int | None = None
        device = pick_device(recipe.training.device)
        self.normalizer = fit_normalizer(batch, recipe)
        self.method = build_method(recipe, batch.class_names, self.normalizer, device)
        self.stages = plan_stages(self.method, recipe, STEPS)
        if number is None:
            number = max(range(len(self.stages)), key=lambda i: self.stages[i].stage.share)
        self.planned = self.stages[number]
        trained = Freezer(self.method, self.stages).enter(self.planned.stage)
        self.method.begin(self.planned.stage, batch, generator_for(0, "stage", number))
        self.optimizer = make_optimizer(trained, self.planned.settings)
        self.augment = Augment(self.planned.views, self.normalizer)
        self.images, self.labels = batch.images[:].to(device), batch.labels.to(device)
        self.step = self.planned.start

    def __call__(self) -> None:
        generator = generator_for(0, "step", self.step)
        views = [
            channels_last(self.augment(self.images, generator, self.size))
            for _ in range(self.method.view_count)
        ]
        now = Progress(self.step, STEPS, self.step, self.planned.stage.name)
        self.optimizer.zero_grad()
        self.method.step(Views(views[0], views[-1], self.labels, now), generator)
        self.optimizer.step()
        self.step += 1


def bench_methods(settings: StepSettings, rounds: int, names: Sequence[str] = ()) -> list[MethodTiming]:
    """Time a step of every stage of the named methods (default: all), taking turns with cross-entropy."""
    chosen = [choose("method", name, METHODS) for name in names] or list(METHODS)
    steps: dict[str, Callable[[], object]] = {}
    passes: dict[str, float] = {}
    for name in dict.fromkeys([REFERENCE, *chosen]):
        if not METHODS[name].needs_training:
            continue
        try:
            first = make_step(name, settings)
        except UserError:
            if names:
                raise
            continue  # it needs weights that only the user has
        for number, planned in enumerate(first.stages):
            step = make_step(name, settings, number) if number else first
            label = f"{name}, {planned.stage.name}" if len(first.stages) > 1 else name
            steps[label] = step
            passes[label] = step.method.passes(planned.stage)
    with reuse_freed_memory():  # as a training does
        timings = take_turns(steps, REFERENCE, rounds)
    return [MethodTiming(t, passes[t.name] / passes[REFERENCE]) for t in timings]


def make_step(method: str, settings: StepSettings, number: int = 0) -> StageStep:
    """Return the step of a stage of the method, with the fields of its recipe for a CPU."""
    layers = {"layers": settings.layers} if "layers" in field_names(method) else {}
    recipe = make_recipe(_read_fields(method) | settings.fields() | layers)
    return StageStep(recipe, settings.batch(), number)


def _read_fields(method: str) -> dict[str, object]:
    """Return the fields of the method's recipe for a CPU, or only its name."""
    name = f"cpu/{method}-cifar10"
    fields = read_recipe_values(name) if name in recipe_names() else {"method": method}
    return fields | _COSTLIEST.get(method, {})
