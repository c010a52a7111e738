"""Which images ``gradmix evaluate`` tests on: a split's, or folders of known and unknown ones."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    from ..data import ImageFormat, ImageSet, Split

_NAMED = re.compile(r"([\w.+-]+)=(.+)")


@dataclass(frozen=True)
class EvaluationImages:
    """Known images in the order of the logits, unknown ones, and what to write about them.

    ``unknown`` is one set, or several by name; ``unknown_names`` are the true classes of the unknown images,
    one each, if they are known.
    """

    known: ImageSet
    unknown: ImageSet | Mapping[str, ImageSet]
    facts: dict[str, Any]
    unknown_names: tuple[str, ...] = ()
    train: ImageSet | None = None
    why_no_train: str = ""
    split: Split | None = field(default=None)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of unknown sets: near, far, …

    @property
    def unknown_sets(self) -> list[ImageSet]:
        """The sets of unknown images, of which there may be one."""
        return list(self.unknown.values()) if isinstance(self.unknown, Mapping) else [self.unknown]


def parse_unknown(words: Sequence[str]) -> dict[str, str]:
    """Return folders by the name of the set: ``name=DIR``, or DIR, which is called by its last part.

    >>> parse_unknown(["svhn=data/svhn", "photos/other"])
    {'svhn': 'data/svhn', 'other': 'photos/other'}
    """
    found: dict[str, str] = {}
    for word in words:
        match = None if Path(word).exists() else _NAMED.fullmatch(word)
        name, folder = (match[1], match[2]) if match else (Path(word).name or word, word)
        if name in found:
            raise UserError(f"two unknown sets are called '{name}'; name them: --unknown NAME={word}")
        found[name] = folder
    return found


def is_named(words: Sequence[str]) -> bool:
    """Return whether the unknown images are several sets, or one with a name."""
    return len(words) > 1 or any(_NAMED.fullmatch(word) and not Path(word).exists() for word in words)


def load_unknown(
    words: Sequence[str], wanted: ImageFormat, data_root: str | None
) -> ImageSet | dict[str, ImageSet]:
    """Load the images of ``--unknown``: one set as it is, or all by name."""
    if not is_named(words):
        return _load_folder(words[0], wanted, data_root)
    return {name: _load_folder(folder, wanted, data_root) for name, folder in parse_unknown(words).items()}


def _load_folder(source: str, wanted: ImageFormat, data_root: str | None) -> ImageSet:
    from ..data import load_image_files, load_images
    from ..data.catalogue import known_set

    if not Path(source).exists() and known_set(source) is not None:
        found = load_images(
            source, split="test", data_root=data_root, size=wanted.size, channels=wanted.channels
        )
        return found.only(range(len(found.class_names)), as_unknown=True)
    return load_image_files([Path(source)], size=wanted.size, channels=wanted.channels)[0]


def refuse_mixed_sources(args: argparse.Namespace) -> None:
    """Refuse a protocol beside folders of known images, and folders of one kind only.

    A protocol's known images may be tried against other unknown ones than its own.
    """
    if args.protocol and args.known:
        raise UserError("give --protocol, or --known and --unknown, not both")
    if not args.protocol and bool(args.known) != bool(args.unknown):
        raise UserError("--known and --unknown go together: a folder of each")


def replace_unknown(
    images: EvaluationImages, args: argparse.Namespace, wanted: ImageFormat
) -> EvaluationImages:
    """Return the images of a protocol, with those of ``--unknown`` in place of its unknown ones, if given."""
    if not args.unknown:
        return images
    facts = {name: value for name, value in images.facts.items() if name != "openness"}
    return replace(
        images,
        unknown=load_unknown(args.unknown, wanted, args.data_root),
        unknown_names=(),
        groups={},
        facts=facts | {"test": f"known of {facts['test']} against {', '.join(args.unknown)}"},
    )


def load_known(source: str, wanted: ImageFormat, data_root: str | None, part: str = "test") -> ImageSet:
    """Load labelled images: all of an undivided folder, else this part of it."""
    from ..data import list_splits, load_images

    splits = list_splits(source, data_root=data_root)
    return load_images(
        source,
        split="all" if "all" in splits else part,
        data_root=data_root,
        size=wanted.size,
        channels=wanted.channels,
    )


def load_benchmark(
    split: Split, wanted: ImageFormat, args: argparse.Namespace, skip_bad: bool = False
) -> EvaluationImages | None:
    """Load the named unknown sets of a protocol that has several; None of one that has not.

    The known images are still to be put in. Says which sets are left out, and how the others differ from
    those that the protocol means.
    """
    from ..data import BENCHMARKS, has_unknown_sets, load_unknown_sets, pool_groups

    if not has_unknown_sets(split.protocol):
        if args.skip_missing:
            raise UserError(
                f"--skip-missing is about protocols of several unknown sets, not {split.protocol}"
            )
        return None
    sets, missing = load_unknown_sets(split.protocol, args.data_root, wanted, args.skip_missing, skip_bad)
    sets = pool_groups(sets) if BENCHMARKS[split.protocol].pooled else sets
    by_group: dict[str, list[str]] = {}
    for found in sets:
        by_group.setdefault(found.group, []).append(found.name)
    notes = {found.name: found.note for found in sets if found.note}
    left_out = {found.name: found.reason for found in missing}
    for name, note in notes.items():
        print(f"note: {name}: {note}", file=sys.stderr)
    for name, reason in left_out.items():
        print(f"note: left out: {name} ({reason})", file=sys.stderr)
    facts = describe_split(split)
    facts |= ({"notes": notes} if notes else {}) | ({"left out": left_out} if left_out else {})
    nobody = sets[0].images.select([])
    groups = {group: names for group, names in by_group.items() if names != [group]}
    return EvaluationImages(nobody, {found.name: found.images for found in sets}, facts, groups=groups)


def check_overlap(images: EvaluationImages, of_ones_own: bool) -> None:
    """Refuse images that are known and unknown at once; in published sets, only say that there are some."""
    from ..data import describe_identical, refuse_identical

    unknown = images.unknown if isinstance(images.unknown, Mapping) else {"the unknown ones": images.unknown}
    for name, found in unknown.items():
        if of_ones_own:
            refuse_identical(images.known, found, "the known ones", name)
        else:
            same = describe_identical(images.known, found, "the known ones", name)
            if same:
                print(f"note: {same}", file=sys.stderr)


def describe_folders(args: argparse.Namespace) -> str:
    return f"{args.known} and {', '.join(args.unknown)}"


def describe_split(split: Split) -> dict[str, Any]:
    openness = {"openness": round(split.openness, 4)} if split.unknown else {}  # else whole sets are unknown
    return {
        "test": f"{split.protocol}, trial {split.trial} ({split.family})",
        "split": split.hash,
        **openness,
    }
