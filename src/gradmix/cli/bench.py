"""Measure speed on this machine, contestants side by side in one run, as ratios.

gradmix bench step
gradmix bench step --encoder resnet18 --image-size 32 --batch-size 64 --rounds 5
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    step = what.add_parser("step", help="one training step: plain, CutMix, GradMix")
    step.add_argument("--encoder", default="resnet8_32", help="default: resnet8_32")
    step.add_argument("--stem", default="half", help="default: half")
    step.add_argument("--image-size", type=int, default=32)
    step.add_argument("--batch-size", type=int, default=256)
    step.add_argument("--layers", default="conv3_2,conv4_2", help="where GradMix looks")
    step.add_argument("--rounds", type=int, default=15, help="steps of each contestant, taking turns")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from ..bench.step import bench_step

    rows = bench_step(
        args.encoder, args.stem, args.image_size, args.batch_size, tuple(args.layers.split(",")), args.rounds
    )
    table = Table("step", "median ms", "x CutMix", "middle half of the ratios", box=None)
    for row in rows:
        spread = f"{row.low:.3f} to {row.high:.3f}"
        table.add_row(row.name, f"{1000 * row.seconds:.0f}", f"{row.ratio:.3f}", spread)
    Console().print(table)
    return 0
