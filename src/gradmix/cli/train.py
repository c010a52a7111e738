"""Train on a folder of class folders, a data set, or a protocol of the literature.

  gradmix train photos/ --out runs/photos
  gradmix train cifar10 --known cat,dog,frog --recipe small --epochs 5 --out runs/pets
  gradmix train cifar10 --n-known 6 --seed 3 --recipe cpu/cifar10 --out runs/six
  gradmix train --protocol mnist --trial 0 --recipe cpu/mnist --out runs/mnist
  gradmix train --resume --out runs/mnist

Every field of the recipe is an option too: --epochs 5 --lr 0.002 --mixer cutmix --layers conv4_2,conv5_2 …
(the recipe with all its fields is written to RUN/recipe.yaml). Ctrl-C stops after the current step;
--resume goes on to exactly the weights that an uninterrupted run would have reached.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .sources import add_split_arguments, recorded_request, source_request, split_of, training_data

if TYPE_CHECKING:
    from ..data import ImageSet
    from ..training import Recipe

TAKES_RECIPE_FIELDS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        nargs="?",
        metavar="FOLDER|DATASET",
        help="folder of class folders, .npz file, or data set name",
    )
    add_split_arguments(parser)
    parser.add_argument("--recipe", default=None, help="small (default), cpu/…, paper/…, or a YAML file")
    parser.add_argument("--out", required=True, type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")


def run(args: argparse.Namespace) -> int:
    from ..recognition import fit
    from ..training import Interrupted, RunFolder, load_recipe

    if args.resume:
        given = (args.recipe_fields, args.recipe, args.source, args.protocol, args.known, args.n_known)
        if any(given):
            raise UserError(
                "--resume goes on with what the run was started with; give only --out (and --data-root)"
            )
        run_folder = RunFolder.open(args.out)
        recipe = run_folder.recipe()
        request = recorded_request(run_folder.facts(), args.out)
        data = training_data(request, args.data_root, recipe)
        if data.content_hash() != request["content_hash"]:
            raise UserError(f"the training images have changed since {args.out} was started; start a new run")
    else:
        recipe = load_recipe(args.recipe or "small", args.recipe_fields)
        request = source_request(args, recipe.training.seed)
        if (args.out / "recipe.yaml").exists():  # before minutes are spent on reading images
            raise UserError(f"{args.out} already holds a run; go on with --resume, or choose another --out")
        data = training_data(request, args.data_root, recipe)
        facts = {
            "command": " ".join(["gradmix", *sys.argv[1:]]),
            "data": request | {"content_hash": data.content_hash(), "counts": data.counts()},
            "split_hash": split_of(request).hash if "split" in request else None,
            "seed": recipe.training.seed,
        }
        run_folder = RunFolder.create(args.out, recipe, facts)
    print(_summary(data, recipe), file=sys.stderr)
    try:
        with nullcontext() if args.resume else run_folder.taken_back_on_mistakes():
            recognizer = fit(data, recipe, run_folder)
    except Interrupted as stop:
        print(f"{stop}; go on with: gradmix train --resume --out {args.out}", file=sys.stderr)
        return 130
    threshold = recognizer.threshold
    if not threshold.guaranteed:
        print(
            f"note: {threshold.n} held-out images cannot bound false rejects by {threshold.false_reject}; "
            f"{threshold.needed} would do. Nothing is rejected yet: raise --holdout or --false-reject",
            file=sys.stderr,
        )
    print(run_folder.model_file)
    return 0


def _summary(data: ImageSet, recipe: Recipe) -> str:
    size, channels = recipe.views.image_size, recipe.views.channels
    colour = "grey" if channels == 1 else "colour"
    s = recipe.training
    length = f"{s.epochs} epochs" + (f", at most {s.max_steps} steps" if s.max_steps else "")
    return (
        f"{len(data)} images of {len(data.class_names)} classes at {size}x{size} {colour}; "
        f"{recipe.method} with {recipe.model.encoder}, {length}"
    )
