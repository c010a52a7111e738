"""Which images a command means: a folder, a data set, a protocol, a split of one's own."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    from ..data import ImageFormat, ImageSet, OpenSetData, Split
    from ..recipe import Recipe
    from ..recognition import Recognizer

NONE_KNOWN_IN_VAL = (
    "no folder of val/ has the name of a class of train/; put images of the same classes there, or give "
    "--holdout 0.1 to set the threshold with training images"
)


def add_split_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--protocol",
        help="mnist, svhn, cifar10, cifar+10, cifar+50, tinyimagenet; ssb-cub, ssb-cars, ssb-aircraft; "
        "openood-cifar10, openood-cifar100; cifar10-f1",
    )
    parser.add_argument("--trial", type=int, help="which of the protocol's splits (default 0)")
    parser.add_argument("--family", help="which family of splits (default arpl_2020)")
    parser.add_argument("--known", metavar="A,B,C", help="of FOLDER|DATASET, only these classes are known")
    parser.add_argument("--n-known", type=int, metavar="N", help="… or this many, drawn by --seed")
    parser.add_argument(
        "--split-seed", type=int, metavar="S", help="draw them by another seed than the training's"
    )
    parser.add_argument("--data-root", metavar="DIR", help="where data sets are (default: $GRADMIX_DATA)")


def make_request(args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return what was asked for, as JSON can hold it: for run.json, and enough to read the images again."""
    from ..data import custom_split, has_validation_folder, list_class_names

    own_split = args.known is not None or args.n_known is not None
    if not args.protocol:
        refuse_without_protocol(args)
    if args.split_seed is not None and args.n_known is None:
        raise UserError("--split-seed draws the known classes: give --n-known too")
    if args.protocol:
        if args.source or own_split:
            raise UserError("give either FOLDER|DATASET (with --known or --n-known) or --protocol, not both")
        split = get_chosen_split(args)
        return {"split": asdict(split), "skip_bad": args.skip_bad}
    if not args.source:
        raise UserError("what to train on? give a folder of class folders, a data set's name, or --protocol")
    if own_split:
        names = list_class_names(args.source, data_root=args.data_root, skip_bad=args.skip_bad)
        known = [name.strip() for name in args.known.split(",")] if args.known else None
        split_seed = seed if args.split_seed is None else args.split_seed
        split = custom_split(args.source, names, known, args.n_known, split_seed)
        return {"split": asdict(split), "skip_bad": args.skip_bad}
    request = {"source": args.source, "skip_bad": args.skip_bad}
    # Whoever asks for a holdout gets it, though there is a folder for that.
    own = "holdout" not in args.recipe_fields and has_validation_folder(args.source, data_root=args.data_root)
    return request | ({"threshold_images": "val"} if own else {})


def get_chosen_split(args: argparse.Namespace) -> Split:
    """Return the published split that --protocol, --trial and --family name."""
    from ..data import get_split

    return get_split(args.protocol, args.trial or 0, args.family)


def refuse_without_protocol(args: argparse.Namespace) -> None:
    """Refuse options that choose among a protocol's splits where there is no protocol."""
    for option, value in (("--trial", args.trial), ("--family", args.family)):
        if value is not None:
            raise UserError(f"{option} is about a protocol's splits: give --protocol too")


def read_request(facts: dict[str, Any], run: Path) -> dict[str, Any]:
    """Return the request that ``gradmix train`` noted in a run's facts."""
    if "data" not in facts:  # the demo's images are not a source that one can name
        raise UserError(
            f"{run} was made by '{facts.get('command', 'something else')}'; run that again instead"
        )
    return dict(facts["data"])


def load_training_data(request: dict[str, Any], data_root: str | None, recipe: Recipe) -> ImageSet:
    """Load the training images of a request, in the recipe's size and channels."""
    from ..data import ImageFormat, load_images
    from ..recognition import refuse_untrainable

    if "split" in request:
        wanted = ImageFormat(recipe.views.image_size, recipe.views.channels)
        split = read_split(request)
        # Data sets that are unknown as a whole are needed in evaluation only, and may be many.
        only_known = not split.unknown
        return load_open_set(split, data_root, wanted, skips_bad(request), only_known).train
    images = load_images(
        request["source"],
        data_root=data_root,
        size=recipe.views.image_size,
        channels=recipe.views.channels,
        skip_bad=skips_bad(request),
    )
    refuse_untrainable(images.class_counts(), recipe, request["source"])
    return images


def load_threshold_images(request: dict[str, Any], data_root: str | None, recipe: Recipe) -> ImageSet | None:
    """Load the images of ``val/``, if they are to set the threshold; of the known classes only."""
    from ..data import load_images

    if "threshold_images" not in request:
        return None
    found = load_images(
        request["source"],
        split=request["threshold_images"],
        data_root=data_root,
        size=recipe.views.image_size,
        channels=recipe.views.channels,
        skip_bad=skips_bad(request),
    )
    known = found.select((found.labels >= 0).nonzero()[:, 0])
    if not len(known):
        raise UserError(f"{request['source']}: {NONE_KNOWN_IN_VAL}")
    return known


def has_own_test(request: dict[str, Any], data_root: str | None) -> bool:
    """Return whether the data of a request has images to test on: those of its split, or a folder test/."""
    from ..data import list_splits

    if "split" in request:
        return True
    source = request["source"]
    return Path(source).is_dir() and "test" in list_splits(source, data_root=data_root)


def load_trained_images(
    facts: dict[str, Any], run: Path, data_root: str | None, model: Recognizer
) -> ImageSet:
    """Load the images that a run was trained on, without those that it held out."""
    from ..recipe import make_recipe
    from ..recognition import hold_out

    recipe = make_recipe(model.recipe)
    images = load_training_data(read_request(facts, run), data_root, recipe)
    if images.class_names != model.class_names:
        raise UserError(f"the images that {run} was trained on are of other classes now than the model knows")
    return hold_out(model.convert(images), recipe)[0]


def load_open_set(
    split: Split, data_root: str | None, wanted: ImageFormat, skip_bad: bool, only_known: bool = False
) -> OpenSetData:
    """Load training and test images of a split, in the given size and channels."""
    from ..data import open_set_data

    return open_set_data(
        split,
        data_root=data_root,
        size=wanted.size,
        channels=wanted.channels,
        skip_bad=skip_bad,
        only_known=only_known,
    )


def skips_bad(request: dict[str, Any]) -> bool:
    return bool(request.get("skip_bad", False))


def read_split(request: dict[str, Any]) -> Split:
    from ..data import Split

    fields = dict(request["split"])
    return Split(**fields | {"known": tuple(fields["known"]), "unknown": tuple(fields["unknown"])})
