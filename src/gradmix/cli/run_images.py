"""Which images a run is evaluated on: a split's, folders of known and unknown ones, or one folder of both."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .evaluation_images import (
    EvaluationImages,
    describe_folders,
    describe_split,
    load_benchmark,
    load_known,
    load_unknown,
    refuse_mixed_sources,
    replace_unknown,
)

if TYPE_CHECKING:
    from ..data import ImageSet
    from .evaluated_model import EvaluatedModel

_MOST_NAMES = 8  # of classes, in a note


def load_images_of_run(args: argparse.Namespace, model: EvaluatedModel) -> EvaluationImages:
    """Load what the command names, or else what the run's own data has to test on."""
    from .sources import (
        get_chosen_split,
        has_own_test,
        read_request,
        read_split,
        refuse_without_protocol,
        skips_bad,
    )

    recognizer = model.recognizer
    wanted = recognizer.image_format
    if not args.protocol:
        refuse_without_protocol(args)
    if args.source:
        if args.protocol or args.known:
            raise UserError("give FOLDER, or --known and --unknown, or --protocol; not two of them")
        return load_mixed_folder(args.source, args, model)
    refuse_mixed_sources(args)
    if args.known:
        known = load_known(args.known, wanted, args.data_root)
        foreign = [name for name in known.class_names if name not in recognizer.class_names]
        if foreign:
            raise UserError(
                f"{args.known} has a class '{foreign[0]}' that the model does not know "
                f"(it knows: {', '.join(recognizer.class_names)})"
            )
        labels = [
            known.class_names.index(n) if n in known.class_names else -1 for n in recognizer.class_names
        ]
        if -1 in labels:
            missing = recognizer.class_names[labels.index(-1)]
            raise UserError(f"{args.known} has no folder for the known class '{missing}'")
        unknown = load_unknown(args.unknown, wanted, args.data_root)
        return EvaluationImages(known.only(labels), unknown, {"test": describe_folders(args)})
    if args.protocol:
        return _load_split(args, model, get_chosen_split(args), skip_bad=False)
    if not model.has_run:
        raise UserError(
            f"{model.path} does not say which images to test it on: give FOLDER, or --known DIR --unknown DIR"
        )
    request = read_request(model.facts, args.run)
    if "split" in request:
        return _load_split(args, model, read_split(request), skips_bad(request))
    if has_own_test(request, args.data_root):
        return load_mixed_folder(request["source"], args, model)
    raise UserError(
        f"{args.run} knows all classes of {request['source']}; nothing there is unknown: "
        "give --known DIR --unknown DIR"
    )


def load_mixed_folder(source: str, args: argparse.Namespace, model: EvaluatedModel) -> EvaluationImages:
    """Load ``test/`` of a folder, or all of one that is not divided: known by the names of its folders.

    Folders with the name of a class that the model knows are known, all others (``test/unknown``) unknown.
    """
    from ..data import list_splits, load_images

    wanted, names = model.recognizer.image_format, model.recognizer.class_names
    splits = list_splits(source, data_root=args.data_root)
    if "all" not in splits and "test" not in splits:
        raise UserError(
            f"{source} has no test/, only {', '.join(splits)}; make one with class folders, or give --known "
            "DIR --unknown DIR"
        )
    part = "all" if "all" in splits else "test"
    images = load_images(
        source, split=part, data_root=args.data_root, size=wanted.size, channels=wanted.channels
    )
    if images.content_hash() == model.facts.get("data", {}).get("content_hash"):
        raise UserError(
            f"{source} are the images that the model was trained on: they say nothing about new ones"
        )
    known, unknown, unknown_names = divide_by_names(images, names)
    test = str(Path(source) / part) if part == "test" else source
    if not len(known):
        raise UserError(
            f"no folder of {test} has the name of a class that the model knows ({', '.join(names)})"
        )
    missing = [name for name, count in known.counts().items() if not count]
    if missing:
        print(f"note: {test} has no images of {_list(missing)}", file=sys.stderr)
    if args.unknown:
        others = load_unknown(args.unknown, wanted, args.data_root)
        test = f"known of {test} against {', '.join(args.unknown)}"
        return EvaluationImages(known, others, {"test": test})
    if unknown_names:
        print(f"note: unknown in {test}: {_list(sorted(set(unknown_names)))}", file=sys.stderr)
    return EvaluationImages(known, unknown, {"test": test}, unknown_names)


def divide_by_names(
    images: ImageSet, class_names: tuple[str, ...]
) -> tuple[ImageSet, ImageSet, tuple[str, ...]]:
    """Return known images, labelled in the order of ``class_names``; the others; and the others' names."""
    import torch

    number = [class_names.index(n) if n in class_names else -1 for n in images.class_names]
    labels = torch.tensor([*number, -1])[images.labels]
    known, unknown = (labels >= 0).nonzero()[:, 0], (labels < 0).nonzero()[:, 0]
    names = []
    for i in unknown.tolist():
        label = int(images.labels[i])
        # Images of another class than those of train/ have lost its name; it is that of their folder.
        names.append(images.class_names[label] if label >= 0 else _folder_of(images.sources, i))
    return (
        replace(images.select(known), labels=labels[known], class_names=class_names),
        replace(images.select(unknown), labels=labels[unknown], class_names=()),
        tuple(names),
    )


def _folder_of(sources: tuple[str, ...], i: int) -> str:
    parts = PurePosixPath(sources[i]).parts if sources else ()
    return parts[1] if len(parts) > 2 else "unknown"


def _load_split(
    args: argparse.Namespace, model: EvaluatedModel, split: Any, skip_bad: bool
) -> EvaluationImages:
    from .sources import load_open_set

    wanted, names = model.recognizer.image_format, model.recognizer.class_names
    several = None if args.unknown else load_benchmark(split, wanted, args, skip_bad)
    only_known = several is not None or bool(args.unknown)
    data = load_open_set(split, args.data_root, wanted, skip_bad, only_known)
    if data.train.class_names != names:
        raise UserError(
            f"{split.protocol} trial {split.trial} has other known classes than the run "
            f"({', '.join(data.train.class_names)} against {', '.join(names)})"
        )
    if several is not None:
        return replace(several, known=data.test_known)
    images = EvaluationImages(data.test_known, data.test_unknown, describe_split(split), data.unknown_names)
    return replace_unknown(images, args, wanted)


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
