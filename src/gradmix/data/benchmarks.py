"""Protocols with one split and several named sets of unknown images: SSB, OpenOOD, macro-F1 on CIFAR10.

Only declarations; :mod:`gradmix.data.unknown_sets` reads the images.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_SSB_FILE = Path(__file__).with_name("ssb_splits.json")


@dataclass(frozen=True)
class UnknownSource:
    """One set of unknown images: ``classes`` of the data set ``source``, or all of it (None).

    Its test images are meant, or all its images if ``whole``. ``group`` is what its results are summarized
    under. ``listed`` is OpenOOD's own list of its images; ``note`` says what is different without the list.
    """

    name: str
    group: str
    source: str
    classes: tuple[int, ...] | None = None
    whole: bool = False
    listed: str = ""
    note: str = ""


@dataclass(frozen=True)
class Benchmark:
    """A protocol: ``known`` classes of ``known_source``, and the sets of unknown images.

    A group's result is computed on all its images together if ``pooled``; otherwise it is the mean over its
    sets.
    """

    name: str
    family: str
    known_source: str
    known: tuple[int, ...]
    unknown: tuple[UnknownSource, ...]
    pooled: bool


def _ssb() -> list[Benchmark]:
    """Return the Semantic Shift Benchmark's three; its own "Hard" is Medium and Hard together."""
    content = json.loads(_SSB_FILE.read_text(encoding="utf-8"))
    groups = {"Easy": "easy", "Medium": "hard", "Hard": "hard"}
    return [
        Benchmark(
            name=name,
            family="ssb",
            known_source=content["data"][name],
            known=tuple(split["known"]),
            unknown=tuple(
                UnknownSource(level.lower(), group, content["data"][name], tuple(split[level]))
                for level, group in groups.items()
            ),
            pooled=True,
        )
        for name, split in content["splits"].items()
    ]


def _openood(known: str, n_classes: int, other: str, kept_of_tiny: int) -> Benchmark:
    """Return OpenOOD 1.5's near and far sets for CIFAR10 or CIFAR100."""

    def unknown(
        name: str, group: str, source: str, listed: str, note: str = "", whole: bool = False
    ) -> UnknownSource:
        return UnknownSource(name, group, source, None, whole, f"{known}/test_{listed}.txt", note)

    validation = "all test images; OpenOOD keeps 1,000 of them for validation"
    similar = f"all 10,000 images; OpenOOD keeps {kept_of_tiny:,}, without those that resemble a known class"
    places = "all images that are there; OpenOOD leaves out those that resemble a known class"
    return Benchmark(
        name=f"openood-{known}",
        family="openood",
        known_source=known,
        known=tuple(range(n_classes)),
        unknown=(
            unknown(other, "near", other, other, validation),
            unknown("tiny-imagenet", "near", "tiny-imagenet", "tin", similar),
            unknown("mnist", "far", "mnist", "mnist", whole=True),
            unknown("svhn", "far", "svhn", "svhn"),
            unknown("textures", "far", "dtd", "texture", whole=True),
            unknown("places365", "far", "places365", "places365", places),
        ),
        pooled=False,
    )


def _macro_f1() -> Benchmark:
    """Return the second classic protocol: CIFAR10 against cropped and resized ImageNet and LSUN."""
    names = ("imagenet-crop", "imagenet-resize", "lsun-crop", "lsun-resize")
    unknown = tuple(UnknownSource(name, name, name, whole=True) for name in names)
    return Benchmark("cifar10-f1", "cifar10_f1", "cifar10", tuple(range(10)), unknown, pooled=False)


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        *_ssb(),
        _openood("cifar10", 10, "cifar100", kept_of_tiny=7_793),
        _openood("cifar100", 100, "cifar10", kept_of_tiny=6_526),
        _macro_f1(),
    )
}
