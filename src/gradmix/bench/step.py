"""What a GradMix step costs, next to a CutMix step and a plain one."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from ..data import ImageSet
from ..methods import METHODS, Views
from ..progress import progress
from ..training import Recipe, make_recipe
from ..training.schedule import make_optimizer
from ..training.seeds import generator_for
from ..training.session import build_network
from ..views import Augment, Normalizer

REFERENCE = "CutMix"


@dataclass(frozen=True)
class StepTime:
    """Median seconds; median and quartiles of the ratio to the reference step of the same round."""

    name: str
    seconds: float
    ratio: float
    low: float
    high: float


def bench_step(
    encoder: str, stem: str, image_size: int, batch_size: int, layers: tuple[str, ...], rounds: int
) -> list[StepTime]:
    """Whole training steps (views, mixing, losses, optimiser) on random images, taking turns."""
    common = {"encoder": encoder, "stem": stem, "image_size": image_size, "layers": layers}
    contestants = {
        "plain (no mixing)": make_recipe(common | {"mixer": "none"}),
        REFERENCE: make_recipe(common | {"mixer": "cutmix"}),
        "GradMix": make_recipe(common | {"mixer": "gradmix"}),
        "GradMix, symmetric": make_recipe(common | {"mixer": "gradmix", "pairing": "symmetric"}),
    }
    generator = generator_for(0, "bench")
    pixels = torch.randint(0, 256, (batch_size, 3, image_size, image_size), generator=generator)
    labels = torch.randint(0, 6, (batch_size,), generator=generator)
    batch = ImageSet(pixels.to(torch.uint8), labels, tuple("abcdef"))
    steps = {name: _Step(recipe, batch) for name, recipe in contestants.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    with progress("measuring", (rounds + 1) * len(steps)) as advance:
        for number in range(rounds + 1):
            for name, step in steps.items():
                taken = step()
                if number:  # the first round warms up caches and allocators
                    seconds[name].append(taken)
                advance(1, note=name)
    return [_summary(name, times, seconds[REFERENCE]) for name, times in seconds.items()]


class _Step:
    def __init__(self, recipe: Recipe, batch: ImageSet) -> None:
        network = build_network(recipe, len(batch.class_names))
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.method = METHODS[recipe.method](network, recipe.objective)
        self.optimizer = make_optimizer(network, recipe.training)
        self.augment = Augment(recipe.views, Normalizer.fit(batch.images))
        self.batch = batch
        self.number = 0

    def __call__(self) -> float:
        started = time.perf_counter()
        generator = generator_for(0, "step", self.number)
        v1, v2 = (
            self.augment(self.batch.images, generator).contiguous(memory_format=torch.channels_last)
            for _ in range(2)
        )
        self.optimizer.zero_grad()
        self.method.step(Views(v1, v2, self.batch.labels), generator)
        self.optimizer.step()
        self.number += 1
        return time.perf_counter() - started


def _summary(name: str, times: list[float], reference: list[float]) -> StepTime:
    ratios = [t / r for t, r in zip(times, reference, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return StepTime(name, statistics.median(times), middle, low, high)
