"""Which images somebody else's network is tried on, and in which order their classes are its logits."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .evaluation_images import (
    EvaluationImages,
    describe_folders,
    describe_split,
    load_benchmark,
    load_known,
    load_unknown,
    replace_unknown,
)

if TYPE_CHECKING:
    from ..data import ImageFormat, ImageSet, Split

_SIZES = {"tinyimagenet": 64}  # of a protocol's images, if not 32
ORDERS = {"list": "the order of the split's list", "sorted": "sorted order"}


@dataclass(frozen=True)
class Plan:
    """How many classes, in which order (changed by which option), and how to load their images.

    ``size`` is that of the images, or 0: the network's usual one.
    """

    classes: int
    order: str
    option: str
    size: int
    load: Callable[[ImageFormat], EvaluationImages]


def plan_split(args: argparse.Namespace) -> Plan:
    """Return the plan of a published split."""
    from .sources import get_chosen_split

    for option in ("classes", "train"):
        if getattr(args, option) is not None:
            raise UserError(f"--{option} goes with --known and --unknown; a protocol has its own")
    split = order_classes(get_chosen_split(args), args.class_order)
    size = _SIZES.get(split.protocol, 32)

    def load(wanted: ImageFormat) -> EvaluationImages:
        published = get_chosen_split(args)
        several = None if args.unknown else load_benchmark(published, wanted, args)
        images = _load_split(published, split, args.data_root, wanted, with_unknown=several is None)
        if several is not None:
            return replace(images, unknown=several.unknown, facts=several.facts, groups=several.groups)
        return replace_unknown(images, args, wanted)

    return Plan(len(split.known), ORDERS[args.class_order or "list"], "--class-order", size, load)


def order_classes(split: Split, order: str | None) -> Split:
    """Return the split with its known classes in the order of the logits; None is that of the list."""
    return replace(split, known=tuple(sorted(split.known))) if order == "sorted" else split


def _load_split(
    published: Split, split: Split, data_root: str | None, wanted: ImageFormat, with_unknown: bool
) -> EvaluationImages:
    """Load official test images of all classes, and training images of the known ones if they are there."""
    from ..data import load_images, names_of

    def load(source: str, part: str) -> ImageSet:
        return load_images(
            source, split=part, data_root=data_root, size=wanted.size, channels=wanted.channels
        )

    test = load(split.known_source, "test")
    known = _require_classes(test.only([int(c) for c in split.known]), f"{split.known_source}, test")
    if with_unknown:
        foreign = test if split.unknown_source == split.known_source else load(split.unknown_source, "test")
        unknown = foreign.only([int(c) for c in split.unknown])
    else:
        unknown = test.select([])
    train, why = None, ""
    try:
        everything = load(split.known_source, "train")
        train = everything.only([int(c) for c in split.known])
        train = _require_classes(train, f"{split.known_source}, train")
    except UserError as error:
        train, why = None, str(error)
    return EvaluationImages(
        known,
        unknown.only(range(len(unknown.class_names)), as_unknown=True),
        describe_split(published),
        names_of(unknown),
        train,
        why,
        published,
    )


def _require_classes(images: ImageSet, where: str) -> ImageSet:
    empty = next((name for name, number in images.counts().items() if number == 0), None)
    if empty is not None:
        raise UserError(f"{where}: there are no images of class '{empty}'")
    return images


def plan_folders(args: argparse.Namespace) -> Plan:
    """Return the plan of folders of known and unknown images."""
    from .sources import refuse_without_protocol

    refuse_without_protocol(args)
    if not args.known:
        raise UserError("on which images? give --protocol and --trial, or --known DIR and --unknown DIR")
    if args.class_order is not None:
        raise UserError("--class-order is about a protocol's splits; for folders give --classes FILE")
    found = _list_classes(args.known, args.data_root)
    names = _read_names(args.classes) if args.classes else found
    _compare_names(names, found, args.classes or args.known, args.known)

    def load(wanted: ImageFormat) -> EvaluationImages:
        known = _in_order(load_known(args.known, wanted, args.data_root), names)
        train, why = None, "give --train DIR"
        if args.train:
            _compare_names(names, _list_classes(args.train, args.data_root), "the model", args.train)
            train = _in_order(load_known(args.train, wanted, args.data_root, "train"), names)
        unknown = load_unknown(args.unknown, wanted, args.data_root)
        return EvaluationImages(
            known, unknown, {"test": describe_folders(args)}, train=train, why_no_train=why
        )

    usual = "the order of the sorted folders" if Path(args.known).exists() else "the data set's own order"
    order = f"the order of {args.classes}" if args.classes else usual
    return Plan(len(names), order, "--classes", 0, load)


def _list_classes(source: str, data_root: str | None) -> tuple[str, ...]:
    """Return the class names of a folder or data set, if possible without reading its images."""
    from ..data import list_class_names, list_splits, load_images
    from ..data.catalogue import known_set

    known = None if Path(source).exists() else known_set(source)
    if known is not None and known.class_names is not None:
        return known.class_names
    if {"train", "all"} & set(list_splits(source, data_root=data_root)):
        return list_class_names(source, data_root=data_root)
    return load_images(source, split="test", data_root=data_root).class_names


def _in_order(images: ImageSet, names: Sequence[str]) -> ImageSet:
    return images.only([images.class_names.index(name) for name in names])


def _read_names(file: str) -> tuple[str, ...]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--classes: {file} cannot be read as text: {type(error).__name__}") from error
    names = tuple(line.strip() for line in text.splitlines() if line.strip())
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None or not names:
        raise UserError(f"--classes: {file} " + (f"names '{twice}' twice" if twice else "names no class"))
    return names


def _compare_names(names: Sequence[str], found: Sequence[str], whose: str, folder: str) -> None:
    """Refuse a folder that has other classes than the list."""
    missing = next((name for name in names if name not in found), None)
    if missing is not None:
        raise UserError(f"{folder} has no folder for the class '{missing}' of {whose}")
    foreign = next((name for name in found if name not in names), None)
    if foreign is not None:
        raise UserError(f"{folder} has a class '{foreign}' that is not in {whose}")
