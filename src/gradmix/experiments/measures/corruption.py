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
from ...data.corruptions.frost_pictures import generate_frost
from ...evaluation import closed_set_accuracy
from ...evaluation.corruption import evaluate_corruption
from ..declaration import WholeSet
from ..images import StoredImages, take_per_class
from .measure_input import Measured, MeasureInput

_MOST_KEPT = 512 * 2**20  # bytes


def measure_corruption(inputs: MeasureInput) -> Measured:
    """Return the mean drops by severity and by type, in shares of 1.

    Images are corrupted in their own size, whose severities are published, and then shrunk to the network's.
    Where the published CIFAR-10-C files lie under the data root, and the whole test set is asked for, they
    are used.
    """
    channels = inputs.recognizer.image_format.channels
    found = inputs.images.load_trial_data(inputs.data, inputs.trial, None, channels).test
    test = take_per_class(found, inputs.corrupted_per_class)
    frost = _load_frost(inputs)
    corrupted = partial(_corrupt, test, frost, _find_published(inputs))
    clean = _measure_accuracy(inputs, test)
    result = evaluate_corruption(
        clean, lambda name, severity: _measure_accuracy(inputs, corrupted(name, severity))
    )
    by_severity = {f"severity/{s}": drop for s, drop in zip(SEVERITIES, result.by_severity, strict=True)}
    by_type = {f"type/{name}": drop for name, drop in result.by_type.items()}
    mean = sum(result.by_severity) / len(SEVERITIES)
    notes = ("The frost pictures are generated, not the published ones",) if frost.generated else ()
    return Measured({"clean": clean, "severity/mean": mean, **by_severity, **by_type}, notes=notes)


def _corrupt(
    test: ImageSet, frost: FrostPictures, official: str | None, name: str, severity: int
) -> ImageSet:
    if official and has_official(official, name):
        images, labels = load_official(official, name, severity)
        return ImageSet(images, labels, test.class_names)
    return ImageSet(_cache.get(test, name, severity, frost), test.labels, test.class_names)


def _load_frost(inputs: MeasureInput) -> FrostPictures:
    """Load the frost pictures beside the data sets, or generate them if there are none."""
    folder = data_root(_get_given_root(inputs)) / "frost"
    return load_frost(folder) if folder.is_dir() else generate_frost()


def _get_given_root(inputs: MeasureInput) -> Path | str | None:
    return inputs.images.data_root if isinstance(inputs.images, StoredImages) else None


def _measure_accuracy(inputs: MeasureInput, images: ImageSet) -> float:
    (scores,) = inputs.scores(images)
    return closed_set_accuracy(images.labels, scores.label)


class _CorruptedSets:
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


_cache = _CorruptedSets()


def _find_published(inputs: MeasureInput) -> str | None:
    whole = inputs.corrupted_per_class is None
    if not whole or inputs.data != WholeSet("cifar10") or not isinstance(inputs.images, StoredImages):
        return None
    return str(data_root(_get_given_root(inputs)))
