"""The images of a trial: read from where data sets lie, or generated to see that an experiment runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import ImageSet, Split, get_split, load_images, names_of, open_set_data, rank_in_class
from ..errors import UserError
from .declaration import Data, WholeSet

_GENERATED_CLASSES = {"cifar100": 100, "tiny-imagenet": 200, "imagenet100": 20, "mini-imagenet": 20}
_GENERATED_EACH = {"train": 12, "test": 6}


@dataclass(frozen=True, eq=False)
class TrialData:
    """What one trial trains and is tested on; no ``unknown`` where there is none."""

    train: ImageSet
    test: ImageSet
    unknown: ImageSet | None = None
    unknown_names: tuple[str, ...] = ()

    def limit_tests(self, most: int | None) -> TrialData:
        """Return a copy with ``most`` test images per known class, and ten times as many unknown ones."""
        if most is None:
            return self
        unknown, names = self.unknown, self.unknown_names
        if unknown is not None:
            chosen = spread_evenly(len(unknown), 10 * most)
            unknown, names = unknown.select(chosen), tuple(names[i] for i in chosen.tolist())
        return TrialData(self.train, take_per_class(self.test, most), unknown, names)


class Images(Protocol):
    """Where images come from; ``size`` None leaves them as large as they are."""

    @property
    def family(self) -> str: ...

    def load_trial_data(self, data: Data, trial: int, size: int | None, channels: int) -> TrialData: ...

    def load_foreign(self, source: str, size: int | None, channels: int) -> ImageSet:
        """Load the test images of a data set that the model was not trained on, all labelled unknown."""
        ...


def get_trial_split(data: Data, trial: int, family: str) -> Split | None:
    """Return the published split that a trial takes; None for a whole data set."""
    if isinstance(data, WholeSet):
        return None
    return get_split(data.protocol, trial if data.only_trial is None else data.only_trial, family)


def list_sources(data: Data, trial: int, family: str) -> list[str]:
    """Return the data sets that a trial reads."""
    split = get_trial_split(data, trial, family)
    if split is not None:
        return list(dict.fromkeys([split.known_source, split.unknown_source]))
    assert isinstance(data, WholeSet)
    return [data.source]


def describe_training_images(data: Data, trial: int, family: str) -> dict[str, Any]:
    """Return what decides the training images: equal for CIFAR+10 and CIFAR+50, which share theirs."""
    split = get_trial_split(data, trial, family)
    if split is not None:
        return {"source": split.known_source, "known": list(split.known)}
    assert isinstance(data, WholeSet)
    return {"source": data.source, "known": _choose_classes(data, family)}


def take_per_class(images: ImageSet, most: int | None) -> ImageSet:
    """Return the first ``most`` images per class; of unknown images ten times as many, evenly spread."""
    if most is None:
        return images
    if not images.class_names:
        return images.select(spread_evenly(len(images), 10 * most))
    return images.select(rank_in_class(images.labels) < most)


def spread_evenly(length: int, most: int) -> Tensor:
    """Return at most ``most`` indices below ``length``, at even distances from the first to the last.

    >>> spread_evenly(5, 3).tolist(), spread_evenly(2, 3).tolist()
    ([0, 2, 4], [0, 1])
    """
    return torch.linspace(0, length - 1, min(length, most)).round().long()


@dataclass(frozen=True)
class StoredImages:
    """Real data sets, under ``data_root``."""

    data_root: Path | str | None = None
    family: str = "arpl_2020"

    def load_trial_data(self, data: Data, trial: int, size: int | None, channels: int) -> TrialData:
        split = get_trial_split(data, trial, self.family)
        if split is not None:
            found = open_set_data(split, data_root=self.data_root, size=size, channels=channels)
            return TrialData(found.train, found.test_known, found.test_unknown, found.unknown_names)
        assert isinstance(data, WholeSet)
        parts = {}
        for part in ("train", "test"):
            images = load_images(
                data.source, split=part, data_root=self.data_root, size=size, channels=channels
            )
            parts[part] = _select_classes(
                images, _choose_classes(data, self.family), f"{data.source}, {part}"
            )
        return TrialData(parts["train"], parts["test"])

    def load_foreign(self, source: str, size: int | None, channels: int) -> ImageSet:
        images = load_images(source, split="test", data_root=self.data_root, size=size, channels=channels)
        return images.only(range(len(images.class_names)), as_unknown=True)


@dataclass(frozen=True)
class GeneratedImages:
    """A soft pattern per class and noise, under the names of the real data sets; the same every time."""

    family: str = "arpl_2020"
    native_size: int = 16

    def load_trial_data(self, data: Data, trial: int, size: int | None, channels: int) -> TrialData:
        split = get_trial_split(data, trial, self.family)
        if split is not None:
            train = _generate(split.known_source, "train", size or self.native_size, channels)
            test = _generate(split.known_source, "test", size or self.native_size, channels)
            foreign = _generate(split.unknown_source, "test", size or self.native_size, channels)
            unknown = foreign.only([int(c) for c in split.unknown])
            known = [int(c) for c in split.known]
            none_known = unknown.only(range(len(unknown.class_names)), as_unknown=True)
            return TrialData(train.only(known), test.only(known), none_known, names_of(unknown))
        assert isinstance(data, WholeSet)
        parts = [
            _generate(data.source, part, size or self.native_size, channels) for part in ("train", "test")
        ]
        # A few classes show as well as a hundred that everything runs.
        chosen = (_choose_classes(data, self.family) or list(range(len(parts[0].class_names))))[:10]
        return TrialData(parts[0].only(chosen), parts[1].only(chosen))

    def load_foreign(self, source: str, size: int | None, channels: int) -> ImageSet:
        images = _generate(source, "test", size or self.native_size, channels)
        return images.only(range(len(images.class_names)), as_unknown=True)


def _choose_classes(data: WholeSet, family: str) -> list[int] | None:
    """Return the classes that are used, None for all."""
    if data.known_of:
        return [int(c) for c in get_split(data.known_of, 0, family).known]
    return list(range(data.first)) if data.first else None


def _select_classes(images: ImageSet, classes: list[int] | None, where: str) -> ImageSet:
    chosen = images if classes is None else images.only(classes)
    empty = next((name for name, number in chosen.counts().items() if number == 0), None)
    if empty is not None:
        raise UserError(f"{where}: there are no images of class '{empty}', which this experiment needs")
    return chosen


def _generate(source: str, part: str, size: int, channels: int) -> ImageSet:
    classes, each = _GENERATED_CLASSES.get(source, 10), _GENERATED_EACH[part]
    patterns = _draw_normal(f"{source}/patterns", (classes, channels, 4, 4))
    patterns = F.interpolate(patterns, (size, size), mode="bilinear")
    labels = torch.arange(classes).repeat(each)
    noise = _draw_normal(f"{source}/{part}", (len(labels), channels, size, size))
    images = (128 + 50 * patterns[labels] + 25 * noise).round().clamp(0, 255).to(torch.uint8)
    return ImageSet(images, labels, tuple(f"{source} {c}" for c in range(classes)))


def _draw_normal(purpose: str, shape: tuple[int, ...]) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:6], "little")
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
