"""What fifteen corruptions at five severities cost (Table 5 and its figure)."""

from __future__ import annotations

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
from ...evaluation import closed_set_accuracy
from ...evaluation.corruption import CorruptionResult
from ...progress import progress
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
    frost, official = load_frost(), _published_folder(subject)
    clean = _accuracy(subject, test)
    table: dict[str, list[float]] = {name: [] for name in CORRUPTIONS}
    with progress("corruptions", len(table) * len(SEVERITIES)) as advance:
        for name, row in table.items():
            for severity in SEVERITIES:
                if official and has_official(official, name):
                    images, labels = load_official(official, name, severity)
                    spoilt = ImageSet(images, labels, test.class_names)
                else:
                    images = _spoilt.get(test, name, severity, frost)
                    spoilt = ImageSet(images, test.labels, test.class_names)
                row.append(_accuracy(subject, spoilt))
                advance(note=f"{name} {severity}")
    result = CorruptionResult(clean, table)
    by_severity = {f"severity/{s}": drop for s, drop in zip(SEVERITIES, result.by_severity, strict=True)}
    by_type = {f"type/{name}": drop for name, drop in result.by_type.items()}
    mean = sum(result.by_severity) / len(SEVERITIES)
    notes = ("The frost pictures are generated, not the published ones",) if frost.generated else ()
    return Measured({"clean": clean, "severity/mean": mean, **by_severity, **by_type}, notes=notes)


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
    return str(data_root(subject.images.data_root))
