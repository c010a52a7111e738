"""Train on a folder of class folders, a data set, or a protocol of the literature.

  gradmix train photos/ --out runs/photos
  gradmix train cifar10 --known cat,dog,frog --recipe small --epochs 5 --out runs/pets
  gradmix train cifar10 --n-known 6 --seed 3 --recipe cpu/cifar10 --out runs/six
  gradmix train --protocol mnist --trial 0 --recipe cpu/mnist --out runs/mnist
  gradmix train photos/ --backbone hf:facebook/dinov2-small --out runs/dino   # nothing to train
  gradmix train photos/ --backbone mine.py:build --out runs/mine
  gradmix train photos/ --method ./mine.py --out runs/mine
  gradmix train --resume runs/mnist
  gradmix train --config photos.yaml --epochs 5             # what is not given here comes from the file
  torchrun --standalone --nproc-per-node 4 -m gradmix train photos/ --out runs/photos

Every field of the recipe is an option too: --epochs 5 --lr 0.002 --mixer cutmix --layers conv4_2,conv5_2 …
(they are listed below; the recipe with all of them is written to RUN/recipe.yaml). Ctrl-C stops after the
current step; --resume goes on to exactly the weights that an uninterrupted run would have reached. Where
photos/ has train/ and val/, the images in val/ set the threshold; else some of train/ do (--holdout).
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .learned import describe_learned
from .sources import (
    add_split_arguments,
    has_own_test,
    load_threshold_images,
    load_training_data,
    make_request,
    read_request,
    read_split,
)

if TYPE_CHECKING:
    from ..data import ImageSet
    from ..distributed import ProcessGroup
    from ..models.backbone import Backbone
    from ..models.user_backbone import UserBackbone
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
    parser.add_argument(
        "--recipe",
        default=None,
        help="photos, small, cpu/…, paper/…, or a YAML file; default for a folder of images: photos "
        "(pre-trained), or small (from nothing) if a field of the training is given",
    )
    parser.add_argument("--out", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--resume", nargs="?", const=True, type=Path, metavar="RUN", help="go on with this run"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE.yaml", help="options and recipe fields; those given here win"
    )
    parser.add_argument(
        "--log",
        action="append",
        metavar="NAME",
        help="also log to tensorboard, wandb, mlflow (several: with commas), or none (default: TensorBoard, "
        "if it is installed)",
    )
    parser.add_argument(
        "--backbone",
        metavar="hf:OWNER/NAME|FILE.py:FUNCTION",
        help="a network that is trained already: an image tower of the Hub (or hf:./FOLDER with its files), "
        "or what a function of your own returns; with recipe frozen, unless --recipe names another",
    )
    parser.add_argument(
        "--backbone-layer", metavar="NAME", help="of FILE.py:FUNCTION: the layer that gives the features"
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")


def describe_more() -> str:
    """Return what help says at its end: the fields of a recipe."""
    from .field_help import describe_fields

    return describe_fields()


def run(args: argparse.Namespace) -> int:
    from ..distributed import join_processes
    from ..methods.from_file import register_code
    from ..models.backbone import register_backbone
    from ..recipe import make_recipe
    from ..recognition import fit_distributed
    from ..training import Interrupted, RunFolder
    from ..training.backbone_copy import unpack_backbone

    _settle_arguments(args)
    with join_processes() as group, ExitStack() as given:
        plan = group.from_first(lambda: _plan(args))
        if plan["finished"]:  # its model may have been changed since, by enroll or calibrate: it stays
            return _print_finished(args.out) if group.rank == 0 else 0
        if group.rank and plan["own_method"]:  # the others need not have the file
            register_code(plan["own_method"]["code"].encode("latin-1"), *plan["own_method"]["origin"])
        recipe, request, goes_on = make_recipe(plan["recipe"]), plan["request"], plan["goes_on"]
        with group.raise_together():
            if plan["own_backbone"]:
                code = unpack_backbone(plan["own_backbone"])
                given.enter_context(register_backbone(_build_backbone(code, recipe)))
            data = load_training_data(request, args.data_root, recipe)
            held_out = load_threshold_images(request, args.data_root, recipe)
            content = "+".join(images.content_hash() for images in (data, held_out) if images is not None)
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
                        run_folder.start(recipe, facts | plan["log"])
            if group.from_first(lambda: run_folder.model_file.exists() and goes_on):  # by another, meanwhile
                return _print_finished(args.out) if group.rank == 0 else 0
            if group.rank:
                return _train_as_worker(data, recipe, group)
            print(_summarize(data, recipe, group.size, held_out), file=sys.stderr)
            try:
                recognizer = fit_distributed(data, recipe, run_folder, group, held_out)
            except Interrupted as stop:
                print(f"{stop}; go on with: gradmix train --resume {args.out}", file=sys.stderr)
                return 130
    assert recognizer is not None
    threshold = recognizer.threshold
    if not threshold.guaranteed:
        print(
            f"note: {threshold.n} held-out images cannot bound false rejects by {threshold.false_reject}; "
            f"{threshold.needed} would do. Nothing is rejected yet: raise --holdout or --false-reject",
            file=sys.stderr,
        )
    elif recognizer.calibration is None and "logits" in recognizer.decision.detector.needs:
        print(
            "note: no images were held out, so the threshold comes from the training images, whose logits "
            "are larger than those of new ones: too many known images will be rejected; use --holdout 0.1",
            file=sys.stderr,
        )
    kind = "held out of training" if held_out is None else "in val/"
    known = {"test": ""} if has_own_test(request, args.data_root) else {}
    print(*describe_learned(recognizer, args.out, kind, **known), sep="\n", file=sys.stderr)
    print(run_folder.model_file)
    return 0


def _settle_arguments(args: argparse.Namespace) -> None:
    """Fill in what --config says, and let ``--resume RUN`` be ``--resume --out RUN``."""
    if args.config is not None:
        from .config_file import apply_config

        parser = argparse.ArgumentParser()
        add_arguments(parser)
        apply_config(args, parser)
    if isinstance(args.resume, Path):
        if args.out not in (None, args.resume):
            raise UserError(f"--resume {args.resume} and --out {args.out} are two runs; give one")
        args.out, args.resume = args.resume, True
    if args.out is None:
        raise UserError("where to put the run? give --out RUN (see: gradmix train --help)")


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
    from ..recognition.build import without_holdout
    from ..training import RunFolder
    from ..training.backbone_copy import pack_backbone, refuse_changed_backbone
    from ..training.log_sinks import check_sinks, make_log_facts, read_sinks
    from ..training.method_copy import pack_method, refuse_changed_method

    if args.resume:
        given = [args.recipe, args.source, args.protocol, args.known, args.n_known]
        given += [args.trial, args.family, args.split_seed, args.log, args.backbone_layer]
        method = args.recipe_fields.pop("method", None)
        if args.recipe_fields or args.skip_bad or any(option is not None for option in given):
            raise UserError(
                "--resume goes on with what the run was started with; give only its folder (and --data-root)"
            )
        run = RunFolder.open(args.out)
        check_sinks(read_sinks(run.facts()))
        refuse_changed_method(run.path, run.facts(), method)
        refuse_changed_backbone(run.path, run.facts(), args.backbone)
        request = read_request(run.facts(), args.out)
        return _plan_resume(run, run.recipe(), request)
    recipe, code = _choose_recipe(args)
    log = make_log_facts(args.log)
    request = make_request(args, recipe.training.seed)
    if "threshold_images" in request:
        recipe = without_holdout(recipe)
    if not (args.out / "recipe.yaml").exists():
        plan = {"recipe": recipe.flat(), "request": request, "own_method": pack_method(recipe.method)}
        more = {"own_backbone": pack_backbone(code), "log": log}
        return plan | more | {"goes_on": False, "finished": False}
    run = RunFolder.open(args.out)
    recorded = _find_restarted_run(run, recipe, request)
    if recorded is None:  # before minutes are spent on reading images
        raise UserError(f"{args.out} already holds a run; go on with --resume, or choose another --out")
    return _plan_resume(run, recipe, recorded)


def _choose_recipe(args: argparse.Namespace) -> tuple[Recipe, tuple[UserBackbone, str] | None]:
    """Return the recipe, and the user's own network with the layer that gives the features, if it is one."""
    from ..models.user_backbone import is_code, read_user_backbone
    from ..recipe import load_recipe, make_recipe
    from ..recipe.with_backbone import BACKBONE_RECIPE, backbone_fields, maps_of

    word, layer, fields = args.backbone, args.backbone_layer, args.recipe_fields
    if layer is not None and (word is None or not is_code(word)):
        raise UserError("--backbone-layer is of a network of your own: give --backbone FILE.py:FUNCTION")
    if word is None:
        return (load_recipe(args.recipe, fields) if args.recipe else _choose_by_images(args)), None
    code = (read_user_backbone(word), layer or "") if is_code(word) else None
    name = args.recipe or BACKBONE_RECIPE
    recipe = load_recipe(name, backbone_fields(word, fields, args.recipe is not None))
    if code is not None and hasattr(recipe.objective, "layers"):
        found = maps_of(_build_backbone(code, recipe), recipe.flat(), fields)
        recipe = make_recipe(recipe.flat() | found)
    return recipe, code


def _build_backbone(code: tuple[UserBackbone, str], recipe: Recipe) -> Backbone:
    from ..training.seeds import generator_for

    seed = generator_for(recipe.training.seed, "weights").initial_seed()
    return code[0].build_encoder(code[1], recipe.views.channels, recipe.views.image_size, seed)


def _choose_by_images(args: argparse.Namespace) -> Recipe:
    """Return the recipe for images that come without one; say in one line which it is, and why."""
    from ..recipe import load_recipe
    from ..recipe.choice import choose_recipe

    own_images = args.protocol is None and args.source is not None and Path(args.source).exists()
    choice = choose_recipe(args.recipe_fields, own_images)
    recipe = load_recipe(choice.recipe, args.recipe_fields)  # first: a mistake in the fields comes alone
    if choice.warn:
        warnings.warn(choice.reason, stacklevel=2)
    elif own_images:
        print(f"recipe {choice.recipe}: {choice.reason}", file=sys.stderr)
    return recipe


def _plan_resume(run: RunFolder, recipe: Recipe, request: dict[str, Any]) -> dict[str, Any]:
    from ..training.backbone_copy import load_kept_backbone, pack_backbone
    from ..training.method_copy import pack_method

    plan = {"recipe": recipe.flat(), "request": request, "own_method": pack_method(recipe.method)}
    plan |= {"own_backbone": pack_backbone(load_kept_backbone(run.path, run.facts()))}
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


def _summarize(data: ImageSet, recipe: Recipe, processes: int, held_out: ImageSet | None) -> str:
    from ..recognition.build import is_frozen
    from ..training.session import describe_network

    size, channels = recipe.views.image_size, recipe.views.channels
    colour = "grey" if channels == 1 else "colour"
    encoder = describe_network(recipe, len(data.class_names)).encoder
    length = "nothing to train" if is_frozen(recipe) else _describe_length(recipe.training)
    limit = recipe.training.limit_per_class
    limited = f" (at most {limit} of each are used)" if limit else ""
    return (
        f"{len(data)} images of {len(data.class_names)} classes{limited} at {size}x{size} {colour}; "
        f"{recipe.method} with {encoder}, {length}"
        + (f"; the threshold from the {len(held_out)} images in val/" if held_out is not None else "")
        + (f"; {processes} processes" if processes > 1 else "")
    )
