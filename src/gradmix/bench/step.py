"""What a GradMix step costs, next to a CutMix step and a plain one, and where its time goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from ..attribution import Capture
from ..data import ImageSet
from ..losses import nt_xent_one_way
from ..methods import Views
from ..methods.gradmix import GradMixMethod
from ..methods.mixed_views import unit
from ..training import Recipe, make_recipe
from ..training.schedule import make_optimizer
from ..training.seeds import generator_for
from ..training.session import build_method, channels_last
from ..views import Augment, Normalizer
from .rounds import Timing, take_turns

REFERENCE = "CutMix"
COMPILED = "GradMix, compiled"
NETWORK = "the network alone"
CONTESTANTS: dict[str, dict[str, object]] = {
    "plain (no mixing)": {"mixer": "none"},
    REFERENCE: {"mixer": "cutmix"},
    "GradMix": {"mixer": "gradmix"},
    "GradMix, symmetric": {"mixer": "gradmix", "pairing": "symmetric"},
}


@dataclass(frozen=True)
class StepSettings:
    """The step that is measured; as in cpu/cifar10 by default."""

    encoder: str = "conv7_32"
    stem: str = "small"
    image_size: int = 32
    batch_size: int = 128
    layers: tuple[str, ...] = ("conv3_2", "conv4_2")

    def __post_init__(self) -> None:
        self.recipe()  # which checks them

    def recipe(self, **more: object) -> Recipe:
        return make_recipe(self.fields() | {"layers": self.layers} | more)

    def fields(self) -> dict[str, object]:
        """Return the fields of a recipe that every method has."""
        return {
            "encoder": self.encoder,
            "stem": self.stem,
            "image_size": self.image_size,
            "batch_size": self.batch_size,
        }

    def batch(self) -> ImageSet:
        """Return random images: the time of a step does not depend on their content."""
        generator = generator_for(0, "bench")
        shape = (self.batch_size, 3, self.image_size, self.image_size)
        pixels = torch.randint(0, 256, shape, generator=generator).to(torch.uint8)
        labels = torch.randint(0, 6, (self.batch_size,), generator=generator)
        return ImageSet(pixels, labels, tuple("abcdef"))


class TrainingStep:
    """Whole training steps (views, mixing, losses, backward, optimiser) on one batch."""

    def __init__(self, recipe: Recipe, batch: ImageSet, size: int | None = None) -> None:
        """``size`` is the side of the views, if it is not the recipe's."""
        normalizer = Normalizer.fit(batch.images)
        self.method = build_method(recipe, batch.class_names, normalizer).train()
        self.network = self.method.network
        trained = [p for p in self.method.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(trained, recipe.training)
        self.augment = Augment(recipe.views, normalizer)
        self.batch = batch
        self.size = size
        self.number = 0

    def __call__(self) -> None:
        generator = generator_for(0, "step", self.number)
        views = self.views(generator)
        self.optimizer.zero_grad()
        self.method.step(views, generator)
        self.optimizer.step()
        self.number += 1

    def views(self, generator: torch.Generator) -> Views:
        views = [
            channels_last(self.augment(self.batch.images[:], generator, self.size))
            for _ in range(self.method.view_count)
        ]
        return Views(views[0], views[-1], self.batch.labels)


def bench_step(settings: StepSettings, rounds: int, compiled: bool = False) -> list[Timing]:
    """Time a step of every contestant, and three forward and backward passes of the network alone."""
    batch = settings.batch()
    contestants = CONTESTANTS | ({COMPILED: {"mixer": "gradmix", "compile": True}} if compiled else {})
    steps: dict[str, Callable[[], object]] = {
        name: TrainingStep(settings.recipe(**fields), batch) for name, fields in contestants.items()
    }
    step = TrainingStep(settings.recipe(), batch)
    views = step.views(generator_for(0, "step"))
    return take_turns(steps | {NETWORK: lambda: _run_network_alone(step, views)}, REFERENCE, rounds)


def measure_compile_seconds(settings: StepSettings) -> float:
    """Return how many seconds the first compiled step takes beyond the second."""
    step = TrainingStep(settings.recipe(compile=True), settings.batch())
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return seconds[0] - seconds[1]


def bench_parts(settings: StepSettings, rounds: int) -> list[Timing]:
    """Time each part of a GradMix step by itself; ratios are to the whole step."""
    step = TrainingStep(settings.recipe(), settings.batch())
    method = step.method
    assert isinstance(method, GradMixMethod)
    assert method.mixer is not None
    mixer = method.mixer
    views = step.views(generator_for(0, "step"))
    z1, z2 = (torch.randn(settings.batch_size, step.network.feature_dim, requires_grad=True) for _ in "12")
    with Capture(step.network.encoder, settings.layers) as capture:
        z = step.network(views.v1)
        activations = capture.activations()
    gradients = torch.autograd.grad(z, activations, torch.ones_like(z))
    maps = method._maps(activations, gradients, views.v1)

    def losses() -> None:
        torch.autograd.grad(method._clean_losses(z1, z2, views.labels)["loss"], (z1, z2))

    def mixed_loss() -> None:
        pair = nt_xent_one_way(unit(z1), unit(z2), 0.05, torch.ones(len(z1)))
        torch.autograd.grad(pair, (z1, z2))

    parts: dict[str, Callable[[], object]] = {
        "whole step": step,
        NETWORK: lambda: _run_network_alone(step, views),
        "two views": lambda: step.views(generator_for(0, "step")),
        "clean losses": losses,
        "mixed loss": mixed_loss,
        "maps": lambda: method._maps(activations, gradients, views.v1),
        "mixing": lambda: method._mix(views.v1, mixer, maps, generator_for(0, "mix")),
        "optimiser": step.optimizer.step,
    }
    return take_turns(parts, "whole step", rounds)


@dataclass(frozen=True)
class FlopRate:
    """Floating point operations per second: of the network inside a step, and of one large matrix product."""

    operations: int  # of a step: three views through the network each way
    network: float
    matmul: float


def bench_flops(settings: StepSettings, rounds: int, side: int = 2048) -> FlopRate:
    """Compare the FLOP/s of the network's three passes each way with those of a matrix product."""
    step = TrainingStep(settings.recipe(), settings.batch())
    views = step.views(generator_for(0, "step"))
    with FlopCounterMode(display=False) as counter:
        _run_network_alone(step, views)
    left, right = torch.randn(2, side, side)
    both = {NETWORK: lambda: _run_network_alone(step, views), "matmul": lambda: left @ right}
    network, matmul = take_turns(both, NETWORK, rounds)
    operations = counter.get_total_flops()
    return FlopRate(operations, operations / network.seconds, 2 * side**3 / matmul.seconds)


def _run_network_alone(step: TrainingStep, views: Views) -> None:
    """Run three views each way, in the order of a GradMix step."""
    step.network.zero_grad()
    z1, z2 = step.network(views.v1), step.network(views.v2)
    torch.autograd.backward(z1, torch.ones_like(z1))
    del z1
    zm = step.network(views.v1)
    torch.autograd.backward([z2, zm], [torch.ones_like(z2), torch.ones_like(zm)])
