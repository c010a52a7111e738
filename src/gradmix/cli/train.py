"""Train on a folder of class folders, a data set, or a protocol of the literature.

  gradmix train photos/ --out runs/photos
  gradmix train cifar10 --known cat,dog,frog --recipe small --epochs 5 --out runs/pets
  gradmix train cifar10 --n-known 6 --seed 3 --recipe cpu/cifar10 --out runs/six
  gradmix train --protocol mnist --trial 0 --recipe cpu/mnist --out runs/mnist
  gradmix train --resume --out runs/mnist
  torchrun --standalone --nproc-per-node 4 -m gradmix train photos/ --out runs/photos

Every field of the recipe is an option too: --epochs 5 --lr 0.002 --mixer cutmix --layers conv4_2,conv5_2 …
(the recipe with all its fields is written to RUN/recipe.yaml). Ctrl-C stops after the current step;
--resume goes on to exactly the weights that an uninterrupted run would have reached.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .sources import add_split_arguments, recorded_request, source_request, split_of, training_data

if TYPE_CHECKING:
    from ..data import ImageSet
    from ..training import Recipe, RunFolder
    from ..training.settings import TrainingSettings
    from ..world import World

TAKES_RECIPE_FIELDS = True
SHARES_WORK = True  # among the processes that torchrun starts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        nargs="?",
        metavar="FOLDER|DATASET",
        help="folder of class folders, .npz file, .zip or .tar archive, or data set name",
    )
    add_split_arguments(parser)
    parser.add_argument("--recipe", default=None, help="small (default), cpu/…, paper/…, or a YAML file")
    parser.add_argument("--out", required=True, type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")


def run(args: argparse.Namespace) -> int:
    from ..recognition import fit_together
    from ..training import Interrupted, make_recipe
    from ..training.distributed import joined

    with joined() as world:
        plan = world.from_first(lambda: _plan(args))
        if plan["finished"]:  # its model may have been changed since, by enroll or calibrate: it stays
            return _say_finished(args.out) if world.rank == 0 else 0
        recipe, request, goes_on = make_recipe(plan["recipe"]), plan["request"], plan["goes_on"]
        with world.together():
            data = training_data(request, args.data_root, recipe)
            content = data.content_hash()
            if goes_on and content != request["content_hash"]:
                raise UserError(
                    f"the training images have changed since {args.out} was started; start a new run"
                )
        content_of_first = world.from_first(lambda: content)
        run_folder: RunFolder | None = None
        with world.together():
            if content != content_of_first:
                raise UserError("the training images here are not those that the first process reads")
            if world.rank == 0:
                facts = _facts(request, recipe, data.counts(), content, world.size)
                run_folder = _run_folder(args.out, recipe, facts, goes_on)
        if run_folder is None:
            return _work_for_others(data, recipe, world)
        print(_summary(data, recipe, world.size), file=sys.stderr)
        try:
            with nullcontext() if goes_on else run_folder.taken_back_on_mistakes():
                recognizer = fit_together(data, recipe, run_folder, world)
        except Interrupted as stop:
            print(f"{stop}; go on with: gradmix train --resume --out {args.out}", file=sys.stderr)
            return 130
    assert recognizer is not None
    threshold = recognizer.threshold
    if not threshold.guaranteed:
        print(
            f"note: {threshold.n} held-out images cannot bound false rejects by {threshold.false_reject}; "
            f"{threshold.needed} would do. Nothing is rejected yet: raise --holdout or --false-reject",
            file=sys.stderr,
        )
    print(run_folder.model_file)
    return 0


def _work_for_others(data: ImageSet, recipe: Recipe, world: World) -> int:
    """What every process but the first does: its share of the training, and nothing else."""
    from ..recognition import fit_together
    from ..training import Interrupted

    try:
        fit_together(data, recipe, None, world)
    except Interrupted:
        return 130
    return 0


def _plan(args: argparse.Namespace) -> dict[str, Any]:
    """Which recipe on which images: what the command says, or what the run says that it goes on with."""
    from ..training import RunFolder, load_recipe

    if args.resume:
        given = [args.recipe, args.source, args.protocol, args.known, args.n_known]
        given += [args.trial, args.family, args.split_seed]
        if args.recipe_fields or args.skip_bad or any(option is not None for option in given):
            raise UserError(
                "--resume goes on with what the run was started with; give only --out (and --data-root)"
            )
        run = RunFolder.open(args.out)
        request = recorded_request(run.facts(), args.out)
        return _going_on(run, run.recipe(), request)
    recipe = load_recipe(args.recipe or "small", args.recipe_fields)
    request = source_request(args, recipe.training.seed)
    if not (args.out / "recipe.yaml").exists():
        return {"recipe": recipe.flat(), "request": request, "goes_on": False, "finished": False}
    run = RunFolder.open(args.out)
    recorded = _restarted(run, recipe, request)
    if recorded is None:  # before minutes are spent on reading images
        raise UserError(f"{args.out} already holds a run; go on with --resume, or choose another --out")
    return _going_on(run, recipe, recorded)


def _going_on(run: RunFolder, recipe: Recipe, request: dict[str, Any]) -> dict[str, Any]:
    finished = run.model_file.exists()
    return {"recipe": recipe.flat(), "request": request, "goes_on": True, "finished": finished}


def _say_finished(out: Path) -> int:
    from ..training import RunFolder

    file = RunFolder.open(out).model_file
    print(f"{out} is finished; delete {file.name} in it to have it made again", file=sys.stderr)
    print(file)
    return 0


def _restarted(run: RunFolder, recipe: Recipe, request: dict[str, Any]) -> dict[str, Any] | None:
    """What the run recorded, if it is this very command's: torchrun starts it again after a failure."""
    from ..training.distributed import launch_id

    launch = launch_id()
    if launch is None:
        return None
    facts = run.facts()
    if facts.get("launch") != launch or run.recipe() != recipe:
        return None
    recorded: dict[str, Any] = facts.get("data", {})
    asked = json.loads(json.dumps(request))  # lists for tuples, as in the file
    return recorded if recorded | asked == recorded else None


def _facts(
    request: dict[str, Any], recipe: Recipe, counts: dict[str, int], content_hash: str, processes: int
) -> dict[str, Any]:
    """What run.json says of a new run."""
    from ..training.distributed import launch_id

    facts: dict[str, Any] = {
        "command": " ".join(["gradmix", *sys.argv[1:]]),
        "data": request | {"content_hash": content_hash, "counts": counts},
        "split_hash": split_of(request).hash if "split" in request else None,
        "seed": recipe.training.seed,
    }
    launch = launch_id()
    return facts if launch is None else facts | {"processes": processes, "launch": launch}


def _run_folder(out: Path, recipe: Recipe, facts: dict[str, Any], goes_on: bool) -> RunFolder:
    from ..training import RunFolder

    return RunFolder.open(out) if goes_on else RunFolder.create(out, recipe, facts)


def _length(s: TrainingSettings) -> str:
    return f"{s.epochs} epochs" + (f", at most {s.max_steps} steps" if s.max_steps else "")


def _summary(data: ImageSet, recipe: Recipe, processes: int) -> str:
    from ..recognition.frozen import is_frozen

    size, channels = recipe.views.image_size, recipe.views.channels
    colour = "grey" if channels == 1 else "colour"
    length = "nothing to train" if is_frozen(recipe) else _length(recipe.training)
    return (
        f"{len(data)} images of {len(data.class_names)} classes at {size}x{size} {colour}; "
        f"{recipe.method} with {recipe.model.encoder}, {length}"
        + (f"; {processes} processes" if processes > 1 else "")
    )
