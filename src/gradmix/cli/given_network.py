"""``gradmix evaluate --weights FILE`` and ``--backbone mine.py:build``: somebody else's network."""

from __future__ import annotations

import argparse
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, choose
from . import add_changed_argument
from .evaluation_images import EvaluationImages, refuse_mixed_sources
from .network_images import ORDERS, Plan, order_classes, plan_folders, plan_split

if TYPE_CHECKING:
    from ..evaluation.network import NetworkResult
    from ..models.given_network import GivenNetwork
    from ..views import Normalizer

RESULTS = "evaluations"  # where results go by default


def add_network_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a network that somebody else trained, instead of RUN")
    group.add_argument(
        "--weights", metavar="FILE", help="its state dict: .pth, .safetensors or hf://owner/name"
    )
    group.add_argument(
        "--encoder", metavar="NAME", help="… of this architecture: vgg32, resnet18, resnet50, …"
    )
    group.add_argument(
        "--backbone",
        metavar="FILE.py:FUNCTION",
        help="any network: what this function returns, a torch.nn.Module; with RUN: what it was made with",
    )
    add_changed_argument(group)
    group.add_argument(
        "--class-order",
        choices=tuple(ORDERS),
        help="of the logits, with --protocol: as the split lists the classes (default), or sorted",
    )
    group.add_argument(
        "--classes", metavar="FILE", help="of the logits, with --known: one name per line (default: sorted)"
    )
    group.add_argument("--train", metavar="DIR", help="training images, with --known: for scores that learn")
    group.add_argument(
        "--normalize",
        metavar="HOW",
        help="cifar, imagenet, half, none, data, or R,G,B/R,G,B: means and deviations in [0, 1] "
        "(default: cifar up to 64 pixels, else imagenet)",
    )
    group.add_argument(
        "--image-size",
        type=int,
        metavar="N",
        help="side of the images that the network takes "
        "(default: 64 for tinyimagenet, 32 for other protocols and small stems, else 224)",
    )


def is_given(args: argparse.Namespace) -> bool:
    """Return whether the command is about somebody else's network."""
    return bool(args.weights or (args.backbone and args.run is None))


def refuse_network_options(args: argparse.Namespace) -> None:
    """Refuse options that are about somebody else's network where there is a run."""
    options = ("encoder", "class_order", "classes", "train", "normalize", "image_size")
    given = next((name for name in options if getattr(args, name) is not None), None)
    if given is not None:
        option = "--" + given.replace("_", "-")
        raise UserError(
            f"{option} is about a network that somebody else trained: give --weights or --backbone"
        )


@dataclass(frozen=True, eq=False)
class Given:
    """The network, its images, how they are normalized, and what to write about all this."""

    network: GivenNetwork
    images: EvaluationImages
    normalizer: Normalizer
    facts: dict[str, Any]


def open_network(args: argparse.Namespace) -> Given:
    """Build the network and load its images; say in one line what was assumed."""
    from ..data import ImageFormat

    if args.run is not None:
        raise UserError(f"give RUN ({args.run}), or --weights, not both")
    refuse_mixed_sources(args)
    if args.weights and not args.backbone and not args.encoder:
        raise UserError(
            "which architecture are these weights of? give --encoder, or --backbone FILE.py:FUNCTION"
        )
    if args.backbone and args.encoder:
        raise UserError("--encoder and --backbone both name the architecture: give one of them")
    plan = plan_split(args) if args.protocol else plan_folders(args)
    given = _build(args, plan)
    images = plan.load(ImageFormat(given.spec.image_size, given.spec.channels))
    normalizer, how = _choose_normalizer(args.normalize, images, given.spec.image_size)
    facts = _describe_network(args) | {
        "classes": f"{plan.classes} in {plan.order}",
        "image size": given.spec.image_size,
        "normalize": {"name": how, "mean": list(normalizer.mean), "std": list(normalizer.std)},
        "training images": len(images.train) if images.train is not None else f"none: {images.why_no_train}",
    }
    color = "gray" if given.spec.channels == 1 else "color"
    note = f"; {given.note}" if given.note else ""
    side, name = given.spec.image_size, args.encoder or args.backbone
    print(
        f"{name}: {plan.classes} classes in {plan.order} ({plan.option} changes it); "
        f"images {side}x{side} {color} (--image-size), "
        f"normalized by {how} (--normalize){note}",
        file=sys.stderr,
    )
    return Given(given, images, normalizer, facts)


def default_folder(args: argparse.Namespace) -> Path:
    """Return where the results go if --out does not say."""
    name = Path(args.weights or args.backbone.rpartition(".py")[0]).stem
    which = f"-{args.protocol}-{args.trial or 0}" if args.protocol else ""
    return Path(RESULTS) / f"{name}{which}"


def print_notes(args: argparse.Namespace, given: Given, found: NetworkResult) -> None:
    """Say which scores are left out, and whether the classes seem to be in another order."""
    images = given.images
    if found.left_out:
        print(
            f"note: left out, for they learn from training images, and there are none "
            f"({images.why_no_train}): {', '.join(found.left_out)}",
            file=sys.stderr,
        )
    hint = _suspect_order(args, images, found)
    if hint:
        print(hint, file=sys.stderr)


def _suspect_order(args: argparse.Namespace, images: EvaluationImages, found: NetworkResult) -> str:
    from ..evaluation.class_order import accuracy_in_order, suspect_order

    result, many = found.result, len(images.known)
    if found.recognizer.network.classifier is None:
        return ""
    true, guess = result.known_labels[:many].numpy(), result.known.label[:many].numpy()
    best = suspect_order(true, guess, len(images.known.class_names))
    if best is None:
        return ""
    now = f"hint: the accuracy of {100 * (true == guess).mean():.1f} % would be"
    if images.split is not None:
        other = "list" if args.class_order == "sorted" else "sorted"
        here, there = (order_classes(images.split, order).known for order in (args.class_order, other))
        as_there = accuracy_in_order(true, guess, [here.index(c) for c in there])
        if as_there >= 0.9 * best:
            return f"{now} {100 * as_there:.1f} % in {ORDERS[other]}: give --class-order {other}"
        return f"{now} {100 * best:.1f} % in another order of the classes than list or sorted: another trial?"
    return (
        f"{now} {100 * best:.1f} % in another order of the classes: give that of the logits by --classes FILE"
    )


def _build(args: argparse.Namespace, plan: Plan) -> GivenNetwork:
    from ..models.given_network import build_user_module, network_from_module, network_from_weights

    size = args.image_size if args.image_size is not None else plan.size
    if args.image_size is not None and args.image_size < 1:
        raise UserError(f"--image-size must be at least 1 pixel, not {args.image_size}")
    if args.backbone:
        module = build_user_module(args.backbone, args.weights or "")
        return network_from_module(module, plan.classes, size or 224)
    return network_from_weights(args.weights, args.encoder, plan.classes, size)


def _choose_normalizer(how: str | None, images: EvaluationImages, size: int) -> tuple[Normalizer, str]:
    """Return the normalizer, and its name."""
    from ..evaluation.network import default_normalization
    from ..views import Normalizer
    from ..views.normalize import IMAGE_NORMALIZATIONS

    name = how or default_normalization(size)
    known = images.known
    if "/" in name:
        means, _, stds = name.partition("/")
        try:
            mean, std = (tuple(float(v) for v in part.split(",")) for part in (means, stds))
        except ValueError as error:
            raise UserError(f"--normalize {name}: means and deviations are numbers, R,G,B/R,G,B") from error
        if not len(mean) == len(std) == known.channels or not all(s > 0 for s in std):
            raise UserError(
                f"--normalize {name}: one mean and one positive deviation per channel, of which there are "
                f"{known.channels}"
            )
        return Normalizer(mean, std), name
    choose("normalisation", name, IMAGE_NORMALIZATIONS)
    source = known if images.train is None else images.train
    return Normalizer.fit(source.images, name), name


def _describe_network(args: argparse.Namespace) -> dict[str, Any]:
    from ..hub_file import fetch, parse_hub_address
    from ..models.user_code import split_word
    from ..training.run_folder import versions

    facts: dict[str, Any] = {"encoder": args.encoder} if args.encoder else {}
    if args.backbone:
        path = split_word(args.backbone)[0]
        facts["backbone"] = {"function": args.backbone, "sha256": _hash(Path(path))}
    if args.weights:
        address = parse_hub_address(args.weights)
        file = fetch(address) if address else Path(args.weights)
        facts["weights"] = {"file": args.weights, "sha256": _hash(file)}
    return facts | {"versions": versions()}


def _hash(file: Path) -> str:
    with open(file, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
