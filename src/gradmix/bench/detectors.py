"""Every post-hoc detector on one evaluation: seconds to fit and to score, next to a loop over the images."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..detection import DETECTORS, HeadWeights, Outputs, make_detector, resolve_name
from ..errors import UserError
from ..progress import progress
from ..training.seeds import generator_for
from .detector_loops import LOOPS

_LOOP_IMAGES = (20, 1000)  # of which the loop's time is taken: the second where the first take no time
_SHORTEST = 0.2


@dataclass(frozen=True)
class DetectorTime:
    """Seconds to fit and to score all test images; ``loop``: the same image by image, both together.

    ``cores``: core-seconds of both, which other programs on the machine change less. ``loop`` is scaled up
    from some images, and None where there is no such loop.
    """

    name: str
    fit: float
    score: float
    cores: float
    loop: float | None


def bench_detectors(
    train: int, test: int, dim: int, classes: int, names: Sequence[str] = ()
) -> list[DetectorTime]:
    """Time detectors on random clustered activations with a head, in the order of the registry."""
    for option, value in {"train": train, "test": test, "dim": dim, "classes": classes}.items():
        if value < 1:
            raise UserError(f"--{option} must be at least 1, not {value}")
    known, queries = make_problem(train, test, dim, classes)
    held_out = known.select(slice(0, max(1, train // 10)))
    chosen = [resolve_name(name) for name in names] or [
        name for name, kind in DETECTORS.items() if kind.needs <= known.parts
    ]
    few, one = make_problem(4 * classes, 4, 4, classes)
    for name in chosen:  # what is imported or loaded at the first use is no part of anyone's time
        make_detector(name).fit(few, classes, held_out=few).score(one)
    found = []
    with progress("measuring", len(chosen)) as advance:
        for name in chosen:
            detector = make_detector(name)
            started, used = time.perf_counter(), time.process_time()
            detector.fit(known, classes, held_out=held_out)
            fitted = time.perf_counter()
            detector.score(queries)
            scored, cores = time.perf_counter(), time.process_time() - used
            loop = _time_loop(name, known, queries) if name in LOOPS else None
            found.append(DetectorTime(name, fitted - started, scored - fitted, cores, loop))
            advance(1, note=name)
    return found


def _time_loop(name: str, known: Outputs, queries: Outputs) -> float:
    """Return the seconds for all queries: those for one, and for each of the others what some more take."""

    def seconds(images: int) -> float:
        started = time.perf_counter()
        LOOPS[name](known, queries.select(slice(0, images)))
        return time.perf_counter() - started

    once, others, each = seconds(1), len(queries.features) - 1, 0.0
    for some in (min(images, others) for images in _LOOP_IMAGES):
        more = max(0.0, seconds(1 + some) - once)
        each = more / max(1, some)
        if more > _SHORTEST:
            break
    return once + each * others


def make_problem(train: int, test: int, dim: int, classes: int) -> tuple[Outputs, Outputs]:
    """Make clustered activations h ≥ 0 whose logits are those of a linear head that finds the clusters."""
    generator = generator_for(0, "bench detectors")
    centers = torch.rand(classes, dim, generator=generator) * 2
    weight = (centers - centers.mean(dim=0)) / dim**0.5
    head = HeadWeights(weight, torch.zeros(classes))

    def outputs(count: int) -> Outputs:
        labels = torch.randint(0, classes, (count,), generator=generator)
        h = torch.randn(count, dim, generator=generator).add_(centers[labels]).relu_()
        return Outputs(h, labels, head.logits(h), penultimate=h, head=head)

    return outputs(train), outputs(test)
