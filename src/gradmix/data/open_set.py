"""Training and test images of an open-set split. No image of an unknown class gets into training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..errors import UserError
from .concatenate import concatenate_unknown
from .imageset import ImageFormat, ImageSet
from .loading import load_images, locate
from .protocols import Split
from .unknown_sets import load_unknown_sets

HELD_OUT = 0.2  # of each known class, where a data set has no test split of its own


@dataclass(frozen=True, eq=False)
class OpenSetData:
    """``train`` and ``test_known`` have labels 0, 1, … in the order of the split; ``test_unknown`` has -1.

    ``unknown_names`` are the true classes of the unknown test images, one each: for reports only.
    """

    train: ImageSet
    test_known: ImageSet
    test_unknown: ImageSet
    split: Split
    unknown_names: tuple[str, ...] = ()


def open_set_data(
    split: Split,
    *,
    data_root: Path | str | None = None,
    size: int | None = None,
    channels: int | None = None,
    limit_per_class: int | None = None,
    skip_bad: bool = False,
    skip_missing: bool = False,
    only_known: bool = False,
) -> OpenSetData:
    """Read what ``split`` needs: official training images of the known classes, official test images of all.

    A source without a test split has a fifth of each known class held out for testing, drawn with the split's
    trial as seed, and all images of its unknown classes are test images. ``limit_per_class`` keeps only the
    first so many images of each class in each part, for quick runs. Where whole data sets are unknown, they
    are put together, without those that are not there if ``skip_missing``. ``only_known`` leaves
    ``test_unknown`` empty.
    """

    def load(source: str, part: str) -> ImageSet:
        return load_images(
            source, split=part, data_root=data_root, size=size, channels=channels, skip_bad=skip_bad
        )

    all_train = load(split.known_source, "train")
    known = _indices(all_train, split.known)
    train = _of_classes(all_train, known, limit=None, where=f"{split.known_source}, train")
    # The test images must look as the training images do, also where the size was left to the reader.
    height, width = all_train.images.shape[-2:]
    size = height if height == width else size
    channels = all_train.channels

    def test_images(source: str) -> ImageSet | None:
        test_split = locate(source, data_root).test_split
        return None if test_split is None else load(source, test_split)

    test = test_images(split.known_source)
    if test is None:
        held_out = draw_held_out(train.labels, HELD_OUT, split.trial)
        train, test_known = train.select(~held_out), train.select(held_out)
    else:
        here = f"{split.known_source}, test"
        test_known = _of_classes(test, _indices(test, split.known), limit=None, where=here)
    if only_known:
        test_unknown = all_train.select([])
        names: tuple[str, ...] = ()
    elif split.unknown:
        foreign = test if split.unknown_source == split.known_source else test_images(split.unknown_source)
        if foreign is None:
            same = split.unknown_source == split.known_source
            foreign = all_train if same else load(split.unknown_source, "train")
        unknown = _indices(foreign, split.unknown)
        where = f"{split.unknown_source}, unknown"
        test_unknown = _of_classes(foreign, unknown, limit_per_class, where)
        names = names_of(test_unknown)
    else:
        wanted = ImageFormat(size or min(height, width), channels)
        sets, _ = load_unknown_sets(split.protocol, data_root, wanted, skip_missing, skip_bad)
        parts = [unknown.images.select(range(len(unknown.images))[:limit_per_class]) for unknown in sets]
        test_unknown = concatenate_unknown(parts)
        names = tuple(u.name for u, part in zip(sets, parts, strict=True) for _ in range(len(part)))
    return OpenSetData(
        train=_first_of_each(train, limit_per_class),
        test_known=_first_of_each(test_known, limit_per_class),
        test_unknown=concatenate_unknown([test_unknown]),
        split=split,
        unknown_names=names,
    )


def names_of(images: ImageSet) -> tuple[str, ...]:
    """Return the class name of every image, in order."""
    return tuple(images.class_names[label] for label in images.labels.tolist())


def draw_held_out(labels: Tensor, share: float, seed: int) -> Tensor:
    """Return (N,) bool for (N,) labels: ``share`` of each class, at least one image, drawn with ``seed``."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(labels), generator=generator)
    rank = torch.empty_like(labels)
    rank[shuffled] = rank_in_class(labels[shuffled])
    of_class = torch.bincount(labels)[labels]
    if len(of_class) and int(of_class.min()) < 2:
        raise UserError(
            "a class has a single image: none is left to train on when one is held out for testing"
        )
    return rank < (of_class * share).round().clamp(min=1)


def rank_in_class(labels: Tensor) -> Tensor:
    """Return (N,) for (N,) labels >= 0: how many images of the same class come before.

    >>> rank_in_class(torch.tensor([7, 2, 7, 7, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = labels.argsort(stable=True)
    number = torch.bincount(labels)
    start = number.cumsum(0) - number
    rank = torch.empty_like(labels)
    rank[order] = torch.arange(len(labels)) - start[labels[order]]
    return rank


def _of_classes(images: ImageSet, classes: Sequence[int], limit: int | None, where: str) -> ImageSet:
    chosen = images.only(classes)
    empty = next((name for name, number in chosen.counts().items() if number == 0), None)
    if empty is not None:
        raise UserError(f"{where}: there are no images of class '{empty}', which this split needs")
    return _first_of_each(chosen, limit)


def _first_of_each(images: ImageSet, limit: int | None) -> ImageSet:
    if limit is None:
        return images
    if limit < 1:
        raise UserError(f"limit per class must be at least 1, not {limit}")
    return images.select(rank_in_class(images.labels) < limit)


def _indices(images: ImageSet, classes: Sequence[int | str]) -> list[int]:
    number = {name: i for i, name in enumerate(images.class_names)}
    missing = next((c for c in classes if isinstance(c, str) and c not in number), None)
    if missing is not None:
        raise UserError(f"no class '{missing}' among the {len(number)} classes of the data")
    return [number[c] if isinstance(c, str) else c for c in classes]
