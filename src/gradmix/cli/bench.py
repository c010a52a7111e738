"""Measure speed on this machine, contestants side by side in one run, as ratios.

gradmix bench step
gradmix bench step --encoder resnet18 --stem small --batch-size 32 --rounds 5
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..bench.rounds import Timing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    step = what.add_parser("step", help="one training step: plain, CutMix, GradMix; where its time goes")
    step.add_argument("--encoder", default="resnet8_32", help="default: resnet8_32")
    step.add_argument("--stem", default="half", help="default: half")
    step.add_argument("--image-size", type=int, default=32)
    step.add_argument("--batch-size", type=int, default=256)
    step.add_argument("--layers", default="conv3_2,conv4_2", help="where GradMix looks")
    step.add_argument("--rounds", type=int, default=15, help="steps of each contestant, taking turns")
    step.set_defaults(bench=_step)


def run(args: argparse.Namespace) -> int:
    args.bench(args)
    return 0


def _step(args: argparse.Namespace) -> None:
    from ..bench.step import NETWORK, StepSettings, bench_flops, bench_parts, bench_step

    layers = tuple(args.layers.split(","))
    settings = StepSettings(args.encoder, args.stem, args.image_size, args.batch_size, layers)
    _print_timings("step", "x CutMix", bench_step(settings, args.rounds))

    parts = bench_parts(settings, args.rounds)
    _print_timings("part of a GradMix step", "of the step", parts)
    around = sum(part.ratio for part in parts if part.name not in ("whole step", NETWORK))
    print(f"around the network: {100 * around:.1f} % of the step")

    rate = bench_flops(settings, args.rounds)
    print(
        f"network: {rate.operations / 1e9:.1f} GFLOP a step at {rate.network / 1e9:.0f} GFLOP/s; "
        f"a 2048 x 2048 matrix product: {rate.matmul / 1e9:.0f} GFLOP/s; "
        f"the network runs at {100 * rate.network / rate.matmul:.0f} % of it"
    )


def _print_timings(what: str, ratio: str, rows: list[Timing]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(what, "median ms", ratio, "middle half of the ratios", box=None)
    for row in rows:
        spread = f"{row.low:.3f} to {row.high:.3f}"
        table.add_row(row.name, f"{1000 * row.seconds:.1f}", f"{row.ratio:.3f}", spread)
    Console().print(table)
