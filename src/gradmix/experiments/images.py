"""The images of a trial: read from where data sets lie, or generated where only the running counts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet, Split, get_split, load_images, open_set_data
from ..data.open_set import names_of, rank_in_class
from ..errors import UserError
from .declaration import Data, WholeSet

_GENERATED_CLASSES = {"cifar100": 100, "tiny-imagenet": 200, "imagenet100": 20, "mini-imagenet": 20}
_GENERATED_EACH = {"train": 12, "test": 6}


@dataclass(frozen=True, eq=False)
class Material:
    """What one trial trains and is tested on; no ``unknown`` where there is none."""

    train: ImageSet
    test: ImageSet
    unknown: ImageSet | None = None
    unknown_names: tuple[str, ...] = ()

    def tested_on(self, most: int | None) -> Material:
        """The same with fewer test images: ``most`` a known class, ten times that of all unknown ones."""
        if most is None:
            return self
        unknown, names = self.unknown, self.unknown_names
        if unknown is not None:
            chosen = evenly(len(unknown), 10 * most)
            unknown, names = unknown.select(chosen), tuple(names[i] for i in chosen.tolist())
        return Material(self.train, per_class(self.test, most), unknown, names)


class Images(Protocol):
    """Where images come from; ``size`` None leaves them as large as they are."""

    @property
    def family(self) -> str: ...

    def material(self, data: Data, trial: int, size: int | None, channels: int) -> Material: ...

    def foreign(self, source: str, size: int | None, channels: int) -> ImageSet:
        """Test images of a data set that the model is not told about, all labelled unknown."""
        ...


def split_of(data: Data, trial: int, family: str) -> Split | None:
    """The published split that a trial takes, if its data is one."""
    if isinstance(data, WholeSet):
        return None
    return get_split(data.protocol, trial if data.only_trial is None else data.only_trial, family)


def sources_of(data: Data, trial: int, family: str) -> list[str]:
    """The data sets that a trial reads."""
    split = split_of(data, trial, family)
    if split is not None:
        return list(dict.fromkeys([split.known_source, split.unknown_source]))
    assert isinstance(data, WholeSet)
    return [data.source]


def identity(data: Data, trial: int, family: str) -> dict[str, Any]:
    """What decides which images are trained on: equal for CIFAR+10 and CIFAR+50, which share theirs."""
    split = split_of(data, trial, family)
    if split is not None:
        return {"source": split.known_source, "known": list(split.known)}
    assert isinstance(data, WholeSet)
    return {"source": data.source, "known": _chosen(data, family)}


def per_class(images: ImageSet, most: int | None) -> ImageSet:
    """The first ``most`` images of every class; of unknown images ten classes' worth, evenly picked."""
    if most is None:
        return images
    if not images.class_names:
        return images.select(evenly(len(images), 10 * most))
    return images.select(rank_in_class(images.labels) < most)


def evenly(length: int, most: int) -> Tensor:
    """At most ``most`` indices into something of ``length``, at even distances from the first to the last.

    >>> evenly(5, 3).tolist(), evenly(2, 3).tolist()
    ([0, 2, 4], [0, 1])
    """
    return torch.linspace(0, length - 1, min(length, most)).round().long()


@dataclass(frozen=True)
class StoredImages:
    """Real data sets, under ``data_root``."""

    data_root: Path | str | None = None
    family: str = "arpl_2020"

    def material(self, data: Data, trial: int, size: int | None, channels: int) -> Material:
        split = split_of(data, trial, self.family)
        if split is not None:
            found = open_set_data(split, data_root=self.data_root, size=size, channels=channels)
            return Material(found.train, found.test_known, found.test_unknown, found.unknown_names)
        assert isinstance(data, WholeSet)
        parts = {}
        for part in ("train", "test"):
            images = load_images(
                data.source, split=part, data_root=self.data_root, size=size, channels=channels
            )
            parts[part] = _only(images, _chosen(data, self.family), f"{data.source}, {part}")
        return Material(parts["train"], parts["test"])

    def foreign(self, source: str, size: int | None, channels: int) -> ImageSet:
        images = load_images(source, split="test", data_root=self.data_root, size=size, channels=channels)
        return images.only(range(len(images.class_names)), as_unknown=True)


@dataclass(frozen=True)
class GeneratedImages:
    """A soft pattern a class and noise, under the names of the real data sets; the same every time."""

    family: str = "arpl_2020"
    native_size: int = 16

    def material(self, data: Data, trial: int, size: int | None, channels: int) -> Material:
        split = split_of(data, trial, self.family)
        if split is not None:
            train = _generated(split.known_source, "train", size or self.native_size, channels)
            test = _generated(split.known_source, "test", size or self.native_size, channels)
            strange = _generated(split.unknown_source, "test", size or self.native_size, channels)
            unknown = strange.only([int(c) for c in split.unknown])
            known = [int(c) for c in split.known]
            none_known = unknown.only(range(len(unknown.class_names)), as_unknown=True)
            return Material(train.only(known), test.only(known), none_known, names_of(unknown))
        assert isinstance(data, WholeSet)
        parts = [
            _generated(data.source, part, size or self.native_size, channels) for part in ("train", "test")
        ]
        # A few classes show as well as a hundred that everything runs.
        chosen = (_chosen(data, self.family) or list(range(len(parts[0].class_names))))[:10]
        return Material(parts[0].only(chosen), parts[1].only(chosen))

    def foreign(self, source: str, size: int | None, channels: int) -> ImageSet:
        images = _generated(source, "test", size or self.native_size, channels)
        return images.only(range(len(images.class_names)), as_unknown=True)


def _chosen(data: WholeSet, family: str) -> list[int] | None:
    """The classes that are used, None for all."""
    if data.known_of:
        return [int(c) for c in get_split(data.known_of, 0, family).known]
    return list(range(data.first)) if data.first else None


def _only(images: ImageSet, classes: list[int] | None, where: str) -> ImageSet:
    chosen = images if classes is None else images.only(classes)
    empty = next((name for name, number in chosen.counts().items() if number == 0), None)
    if empty is not None:
        raise UserError(f"{where}: there are no images of class '{empty}', which this experiment needs")
    return chosen


def _generated(source: str, part: str, size: int, channels: int) -> ImageSet:
    classes, each = _GENERATED_CLASSES.get(source, 10), _GENERATED_EACH[part]
    patterns = _normal(f"{source}/patterns", (classes, channels, 4, 4))
    patterns = F.interpolate(patterns, (size, size), mode="bilinear")
    labels = torch.arange(classes).repeat(each)
    noise = _normal(f"{source}/{part}", (len(labels), channels, size, size))
    images = (128 + 50 * patterns[labels] + 25 * noise).round().clamp(0, 255).to(torch.uint8)
    return ImageSet(images, labels, tuple(f"{source} {c}" for c in range(classes)))


def _normal(purpose: str, shape: tuple[int, ...]) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:6], "little")
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
