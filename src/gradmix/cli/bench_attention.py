"""``gradmix bench attention``: the covering test, on the test images of a run, a protocol or a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from . import read_backbone
from .evaluated_model import open_model
from .given_network import add_network_arguments, is_given, open_network, refuse_network_options
from .run_images import load_images_of_run

if TYPE_CHECKING:
    from ..data import ImageSet
    from ..recognition import Recognizer


def add_attention_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a run's folder, or a model")
    parser.add_argument("source", nargs="?", metavar="FOLDER", help="class folders to test on")
    parser.add_argument("--protocol", help="on the known test images of this protocol")
    parser.add_argument("--trial", type=int, help="… and this trial of it (default 0)")
    parser.add_argument("--family", help="… in this family of splits (default arpl_2020)")
    parser.add_argument("--known", metavar="DIR", help="folder of class folders, named as in training")
    parser.add_argument(
        "--unknown", metavar="DIR", action="append", help="goes with --known, and is not used"
    )
    parser.add_argument("--images", type=int, default=1000, metavar="N", help="of all, evenly (default 1000)")
    parser.add_argument(
        "--side", type=float, metavar="S", help="of the square, of the image's side (default 0.375)"
    )
    parser.add_argument("--skip-missing", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--data-root", metavar="DIR", help="where data sets are (default: $GRADMIX_DATA)")
    add_network_arguments(parser)


def run_attention(args: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from ..bench.attention import SIDE, measure_covering
    from ..experiments.images import spread_evenly

    if args.images < 1:
        raise UserError(f"--images must be at least 1, not {args.images}")
    recognizer, known = _open(args)
    chosen = known.select(spread_evenly(len(known), args.images))
    found = measure_covering(recognizer, chosen, SIDE if args.side is None else args.side)
    table = Table("map of", "sign", "layers", "named right, covered at its peak", box=None)
    for row in found.rows:
        table.add_row(row.target, row.sign, "+".join(row.layers), f"{100 * row.left:.1f}")
    Console().print(table)
    print(
        f"{found.images} images, per cent: uncovered {100 * found.uncovered:.1f}, covered at random "
        f"{100 * found.random:.1f}; the standard error of a share is at most {100 * found.error:.1f}"
    )


def _open(args: argparse.Namespace) -> tuple[Recognizer, ImageSet]:
    """Return the model, and the known test images that the command names or the run has."""
    if is_given(args):
        from ..recognition.given_network import make_recognizer

        given = open_network(args)
        known = given.images.known.convert(given.network.spec.image_size, given.network.spec.channels)
        return make_recognizer(given.network, given.normalizer, known.class_names), known
    if args.run is None:
        raise UserError(
            "which network? give a run's folder, or --weights FILE or --backbone FILE.py:FUNCTION"
        )
    refuse_network_options(args)
    model = open_model(args.run, read_backbone(args))
    return model.recognizer, load_images_of_run(args, model).known
