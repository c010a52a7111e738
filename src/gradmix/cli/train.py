"""Train on a folder of class folders, a data set, or a protocol of the literature.

  gradmix train photos/ --out runs/photos
  gradmix train cifar10 --known cat,dog,frog --recipe small --epochs 5 --out runs/pets
  gradmix train cifar10 --n-known 6 --seed 3 --recipe cpu/cifar10 --out runs/six
  gradmix train --protocol mnist --trial 0 --recipe cpu/mnist --out runs/mnist
  gradmix train photos/ --method ./mine.py --out runs/mine
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
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .sources import add_split_arguments, load_training_data, make_request, read_request, read_split

if TYPE_CHECKING:
    from ..data import ImageSet
    from ..distributed import ProcessGroup
    from ..recipe import Recipe, TrainingSettings
    from ..training import RunFolder

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
    from ..distributed import join_processes
    from ..methods.from_file import register_code
    from ..recipe import make_recipe
    from ..recognition import fit_distributed
    from ..training import Interrupted, RunFolder

    with join_processes() as group:
        plan = group.from_first(lambda: _plan(args))
        if plan["finished"]:  # its model may have been changed since, by enroll or calibrate: it stays
            return _print_finished(args.out) if group.rank == 0 else 0
        if group.rank and plan["own_method"]:  # the others need not have the file
            register_code(plan["own_method"]["code"].encode("latin-1"), *plan["own_method"]["origin"])
        recipe, request, goes_on = make_recipe(plan["recipe"]), plan["request"], plan["goes_on"]
        with group.raise_together():
            data = load_training_data(request, args.data_root, recipe)
            content = data.content_hash()
            if goes_on and content != request["content_hash"]:
                raise UserError(
                    f"the training images have changed since {args.out} was started; start a new run"
                )
        content_of_first = group.from_first(lambda: content)
        run_folder = RunFolder(args.out)
        with ExitStack() as stack:
            with group.raise_together():
                if content != content_of_first:
                    raise UserError("the training images here are not those that the first process reads")
                if group.rank == 0:
                    stack.enter_context(run_folder.rollback_on_error())  # locked before all else
                    if goes_on:
                        RunFolder.open(args.out)  # refuse if it was removed while the images were read
                    else:
                        facts = _make_facts(request, recipe, data.counts(), content, group.size)
                        run_folder.start(recipe, facts)
            if group.from_first(lambda: run_folder.model_file.exists() and goes_on):  # by another, meanwhile
                return _print_finished(args.out) if group.rank == 0 else 0
            if group.rank:
                return _train_as_worker(data, recipe, group)
            print(_summarize(data, recipe, group.size), file=sys.stderr)
            try:
                recognizer = fit_distributed(data, recipe, run_folder, group)
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
    elif not threshold.held_out and "logits" in recognizer.decision.detector.needs:
        print(
            "note: no images were held out, so the threshold comes from the training images, whose logits "
            "are larger than those of new ones: too many known images will be rejected; use --holdout 0.1",
            file=sys.stderr,
        )
    print(run_folder.model_file)
    return 0


def _train_as_worker(data: ImageSet, recipe: Recipe, group: ProcessGroup) -> int:
    """Do the part of every process but the first: its share of the training, and nothing else."""
    from ..recognition import fit_distributed
    from ..training import Interrupted

    try:
        fit_distributed(data, recipe, None, group)
    except Interrupted:
        return 130
    return 0


def _plan(args: argparse.Namespace) -> dict[str, Any]:
    """Return which recipe on which images: the command's, or those of the run that it resumes."""
    from ..recipe import load_recipe
    from ..training import RunFolder
    from ..training.method_copy import pack_method, refuse_changed_method

    if args.resume:
        given = [args.recipe, args.source, args.protocol, args.known, args.n_known]
        given += [args.trial, args.family, args.split_seed]
        method = args.recipe_fields.pop("method", None)
        if args.recipe_fields or args.skip_bad or any(option is not None for option in given):
            raise UserError(
                "--resume goes on with what the run was started with; give only --out (and --data-root)"
            )
        run = RunFolder.open(args.out)
        refuse_changed_method(run.path, run.facts(), method)
        request = read_request(run.facts(), args.out)
        return _plan_resume(run, run.recipe(), request)
    recipe = load_recipe(args.recipe or "small", args.recipe_fields)
    request = make_request(args, recipe.training.seed)
    if not (args.out / "recipe.yaml").exists():
        plan = {"recipe": recipe.flat(), "request": request, "own_method": pack_method(recipe.method)}
        return plan | {"goes_on": False, "finished": False}
    run = RunFolder.open(args.out)
    recorded = _find_restarted_run(run, recipe, request)
    if recorded is None:  # before minutes are spent on reading images
        raise UserError(f"{args.out} already holds a run; go on with --resume, or choose another --out")
    return _plan_resume(run, recipe, recorded)


def _plan_resume(run: RunFolder, recipe: Recipe, request: dict[str, Any]) -> dict[str, Any]:
    from ..training.method_copy import pack_method

    plan = {"recipe": recipe.flat(), "request": request, "own_method": pack_method(recipe.method)}
    return plan | {"goes_on": True, "finished": run.model_file.exists()}


def _print_finished(out: Path) -> int:
    from ..training import RunFolder

    file = RunFolder.open(out).model_file
    print(f"{out} is finished; delete {file.name} in it to have it made again", file=sys.stderr)
    print(file)
    return 0


def _find_restarted_run(run: RunFolder, recipe: Recipe, request: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the run recorded if this command started it: torchrun starts it again after a failure."""
    from ..distributed import launch_id

    launch = launch_id()
    if launch is None:
        return None
    facts = run.facts()
    if facts.get("launch") != launch or run.recipe() != recipe:
        return None
    recorded: dict[str, Any] = facts.get("data", {})
    asked = json.loads(json.dumps(request))  # lists for tuples, as in the file
    return recorded if recorded | asked == recorded else None


def _make_facts(
    request: dict[str, Any], recipe: Recipe, counts: dict[str, int], content_hash: str, processes: int
) -> dict[str, Any]:
    """Return the content of run.json for a new run."""
    from ..distributed import launch_id

    facts: dict[str, Any] = {
        "command": " ".join(["gradmix", *sys.argv[1:]]),
        "data": request | {"content_hash": content_hash, "counts": counts},
        "split_hash": read_split(request).hash if "split" in request else None,
        "seed": recipe.training.seed,
    }
    launch = launch_id()
    return facts if launch is None else facts | {"processes": processes, "launch": launch}


def _describe_length(s: TrainingSettings) -> str:
    return f"{s.epochs} epochs" + (f", at most {s.max_steps} steps" if s.max_steps else "")


def _summarize(data: ImageSet, recipe: Recipe, processes: int) -> str:
    from ..recognition.build import is_frozen
    from ..training.session import describe_network

    size, channels = recipe.views.image_size, recipe.views.channels
    colour = "grey" if channels == 1 else "colour"
    encoder = describe_network(recipe, len(data.class_names)).encoder
    length = "nothing to train" if is_frozen(recipe) else _describe_length(recipe.training)
    return (
        f"{len(data)} images of {len(data.class_names)} classes at {size}x{size} {colour}; "
        f"{recipe.method} with {encoder}, {length}" + (f"; {processes} processes" if processes > 1 else "")
    )
