"""What fifteen corruptions at five severities cost (Table 5 and its figure)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from torch import Tensor

from ...data import ImageSet, data_root
from ...data.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    FrostPictures,
    corrupt,
    has_official,
    load_frost,
    load_official,
)
from ...data.corruptions.frost import generated_frost
from ...evaluation import closed_set_accuracy
from ...evaluation.corruption import evaluate_corruption
from ..declaration import WholeSet
from ..images import StoredImages, per_class
from .subject import Measured, Subject

_MOST_KEPT = 512 * 2**20  # bytes


def corruption(subject: Subject) -> Measured:
    """Mean drops by severity and by type, in shares of 1.

    Images are corrupted in their own size, whose severities are published, and then shrunk to the network's.
    Where the published CIFAR-10-C files lie under the data root, and the whole test set is asked for, they
    are used.
    """
    channels = subject.recognizer.recipe.views.channels
    found = subject.images.material(subject.data, subject.trial, None, channels).test
    test = per_class(found, subject.corrupted_per_class)
    frost = _frost(subject)
    spoilt = partial(_corrupted, test, frost, _published_folder(subject))
    clean = _accuracy(subject, test)
    result = evaluate_corruption(clean, lambda name, severity: _accuracy(subject, spoilt(name, severity)))
    by_severity = {f"severity/{s}": drop for s, drop in zip(SEVERITIES, result.by_severity, strict=True)}
    by_type = {f"type/{name}": drop for name, drop in result.by_type.items()}
    mean = sum(result.by_severity) / len(SEVERITIES)
    notes = ("The frost pictures are generated, not the published ones",) if frost.generated else ()
    return Measured({"clean": clean, "severity/mean": mean, **by_severity, **by_type}, notes=notes)


def _corrupted(
    test: ImageSet, frost: FrostPictures, official: str | None, name: str, severity: int
) -> ImageSet:
    if official and has_official(official, name):
        images, labels = load_official(official, name, severity)
        return ImageSet(images, labels, test.class_names)
    return ImageSet(_spoilt.get(test, name, severity, frost), test.labels, test.class_names)


def _frost(subject: Subject) -> FrostPictures:
    """The pictures beside the data sets that the images are from, else generated ones."""
    place = data_root(_given_root(subject)) / "frost"
    return load_frost(place) if place.is_dir() else generated_frost()


def _given_root(subject: Subject) -> Path | str | None:
    return subject.images.data_root if isinstance(subject.images, StoredImages) else None


def _accuracy(subject: Subject, images: ImageSet) -> float:
    (scores,) = subject.scores(images)
    return closed_set_accuracy(images.labels, scores.label)


class _Spoilt:
    """Corrupted sets of the images seen last, if they fit: arms and trials are tested on the same ones."""

    def __init__(self) -> None:
        self._of = ""
        self._sets: dict[tuple[str, int], Tensor] = {}

    def get(self, test: ImageSet, name: str, severity: int, frost: FrostPictures) -> Tensor:
        images, of = test.images[:], f"{test.content_hash()} {frost.origin}"
        if of != self._of:
            self._of, self._sets = of, {}
        found = self._sets.get((name, severity))
        if found is None:
            found = corrupt(images, name, severity, frost=frost)
            if images.numel() * len(CORRUPTIONS) * len(SEVERITIES) <= _MOST_KEPT:
                self._sets[name, severity] = found
        return found


_spoilt = _Spoilt()


def _published_folder(subject: Subject) -> str | None:
    whole = subject.corrupted_per_class is None
    if not whole or subject.data != WholeSet("cifar10") or not isinstance(subject.images, StoredImages):
        return None
    return str(data_root(_given_root(subject)))
