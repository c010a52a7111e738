"""Which images ``gradmix evaluate`` tests on: a split's, or folders of known and unknown ones."""

from __future__ import annotations

import argparse
import re
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


def describe_folders(args: argparse.Namespace) -> str:
    return f"{args.known} and {', '.join(args.unknown)}"


def describe_split(split: Split) -> dict[str, Any]:
    return {
        "test": f"{split.protocol}, trial {split.trial} ({split.family})",
        "split": split.hash,
        "openness": round(split.openness, 4),
    }
