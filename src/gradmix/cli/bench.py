"""Measure speed on this machine, contestants side by side in one run, as ratios.

gradmix bench step
gradmix bench step --encoder resnet18 --batch-size 32 --rounds 5
gradmix bench methods --method arpl --method medaf
gradmix bench quality --protocol cifar10 --minutes 10 --out bench/cifar10
gradmix bench attention runs/cifar10
gradmix bench knn --features 1000000 --classes 1000
gradmix bench detectors --dim 512
gradmix bench extract --encoder resnet18
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError, choose
from .bench_attention import add_attention_arguments, run_attention

if TYPE_CHECKING:
    from ..bench.rounds import Timing
    from ..bench.step import StepSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    step = what.add_parser("step", help="one training step: plain, CutMix, GradMix; where its time goes")
    add_step_arguments(step, rounds=15)
    step.add_argument(
        "--compile", action="store_true", help="with a row for torch.compile, and what it costs"
    )
    step.set_defaults(bench=_step)

    methods = what.add_parser("methods", help="one training step of every method, next to cross-entropy's")
    add_step_arguments(methods, rounds=7)
    methods.add_argument("--method", action="append", metavar="NAME", help="repeatable (default: all)")
    methods.set_defaults(bench=_methods)

    quality = what.add_parser("quality", help="AUROC against minutes: ce, supcon + simclr, CutMix, GradMix")
    quality.add_argument("--protocol", default="cifar10", help="default: cifar10")
    quality.add_argument("--trial", type=int, default=0)
    quality.add_argument("--recipe", help="default: cpu/ and the protocol's name")
    quality.add_argument("--minutes", type=float, default=10, help="of training, for each arm (default 10)")
    quality.add_argument("--points", type=int, default=4, help="evaluations on the way (default 4)")
    quality.add_argument(
        "--arm",
        action="append",
        metavar="ARM",
        help="ce, none, cutmix or gradmix; repeatable (default: all)",
    )
    quality.add_argument("--data-root", metavar="DIR", help="where data sets are (default: $GRADMIX_DATA)")
    quality.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="run folders; goes on if there"
    )
    quality.set_defaults(bench=_quality)

    attention = what.add_parser(
        "attention", help="right answers left with a square on the peak of each map, beside a random place"
    )
    add_attention_arguments(attention)
    attention.set_defaults(bench=run_attention)

    knn = what.add_parser("knn", help="nearest neighbours: ours, faiss, a numpy loop (needs the extra faiss)")
    knn.add_argument("--features", type=int, default=1_000_000, help="training images (default 1,000,000)")
    knn.add_argument("--classes", type=int, default=1000)
    knn.add_argument("--dim", type=int, default=128)
    knn.add_argument("--k", type=int, default=3)
    knn.add_argument("--queries", type=int, default=512)
    knn.add_argument("--rounds", type=int, default=3, help="searches of each contestant, taking turns")
    knn.add_argument("--approximate", action="store_true", help="with the approximate index, and its recall")
    knn.set_defaults(bench=_knn)

    detectors = what.add_parser("detectors", help="every post-hoc detector: seconds to fit and to score")
    detectors.add_argument("--train", type=int, default=30_000, help="training images (default 30,000)")
    detectors.add_argument("--test", type=int, default=10_000, help="test images (default 10,000)")
    detectors.add_argument("--dim", type=int, default=128, help="activations per image (default 128)")
    detectors.add_argument("--classes", type=int, default=10)
    detectors.add_argument("--detector", action="append", metavar="NAME", help="repeatable (default: all)")
    detectors.set_defaults(bench=_detectors)

    extract = what.add_parser("extract", help="features of images: the network alone, extraction, the cache")
    extract.add_argument("--encoder", default="conv7_32", help="default: conv7_32")
    extract.add_argument("--stem", default="small", help="default: small")
    extract.add_argument("--image-size", type=int, default=32)
    extract.add_argument("--images", type=int, default=4096)
    extract.add_argument("--rounds", type=int, default=5, help="extractions of each contestant, taking turns")
    extract.set_defaults(bench=_extract)


def run(args: argparse.Namespace) -> int:
    from ..training import Interrupted

    try:
        args.bench(args)
    except Interrupted as stop:
        print(f"{stop}; give the same command again to go on", file=sys.stderr)
        return 130
    return 0


def add_step_arguments(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Add which step to measure, and how often; also for the scripts in ``benchmarks/``."""
    parser.add_argument("--encoder", default="conv7_32", help="default: conv7_32")
    parser.add_argument("--stem", default="small", help="default: small")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--layers", default="conv3_2,conv4_2", help="where GradMix looks")
    parser.add_argument("--rounds", type=int, default=rounds, help="steps of each contestant, taking turns")


def step_settings(args: argparse.Namespace) -> StepSettings:
    from ..bench.step import StepSettings

    layers = tuple(args.layers.split(","))
    return StepSettings(args.encoder, args.stem, args.image_size, args.batch_size, layers)


def print_timings(what: str, ratio: str, rows: list[Timing]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(what, "median ms", ratio, "middle half of the ratios", box=None)
    for row in rows:
        spread = f"{row.low:.3f} to {row.high:.3f}"
        table.add_row(row.name, f"{1000 * row.seconds:.1f}", f"{row.ratio:.3f}", spread)
    Console().print(table)


def _step(args: argparse.Namespace) -> None:
    from ..bench.step import NETWORK, bench_flops, bench_parts, bench_step, measure_compile_seconds

    settings = step_settings(args)
    compiling = measure_compile_seconds(settings) if args.compile else 0.0
    print_timings("step", "x CutMix", bench_step(settings, args.rounds, args.compile))
    if args.compile:
        print(f"compiling took {compiling:.0f} s")

    parts = bench_parts(settings, args.rounds)
    print_timings("part of a GradMix step", "of the step", parts)
    around = sum(part.ratio for part in parts if part.name not in ("whole step", NETWORK))
    print(f"around the network: {100 * around:.1f} % of the step")

    rate = bench_flops(settings, args.rounds)
    print(
        f"network: {rate.operations / 1e9:.1f} GFLOP a step at {rate.network / 1e9:.0f} GFLOP/s; "
        f"a 2048 x 2048 matrix product: {rate.matmul / 1e9:.0f} GFLOP/s; "
        f"the network runs at {100 * rate.network / rate.matmul:.0f} % of it"
    )


def _methods(args: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from ..bench.methods import bench_methods

    table = Table("step of", "median ms", "x ce", "middle half of the ratios", "x ce, predicted", box=None)
    for row in bench_methods(step_settings(args), args.rounds, args.method or ()):
        timing = row.timing
        spread = f"{timing.low:.2f} to {timing.high:.2f}"
        table.add_row(
            timing.name,
            f"{1000 * timing.seconds:.1f}",
            f"{timing.ratio:.2f}",
            spread,
            f"{row.predicted:.2f}",
        )
    Console().print(table)
    print("predicted: forward passes of the encoder per image, a backward counted as two; generators are not")


def _quality(args: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from ..bench.quality import CONTESTANTS, bench_quality
    from ..data import ImageFormat, get_split
    from ..experiments.report.figures import curves_figure
    from ..files import write_text
    from ..recipe import load_recipe
    from ..report.figure_files import standalone
    from .sources import load_open_set

    if args.minutes <= 0 or args.points < 1:
        raise UserError("--minutes must be positive and --points at least 1")
    chosen = [CONTESTANTS[choose("arm", name, CONTESTANTS)] for name in args.arm or CONTESTANTS]
    recipe = load_recipe(args.recipe or f"cpu/{args.protocol}")
    wanted = ImageFormat(recipe.views.image_size, recipe.views.channels)
    data = load_open_set(get_split(args.protocol, args.trial), args.data_root, wanted, skip_bad=False)
    curves = bench_quality(data, recipe, args.minutes, args.out, args.points, chosen, keep_models=True)
    table = Table("arm", "minutes", "steps", "AUROC", "accuracy", box=None)
    for curve in curves:
        for point in curve.points:
            percent = (f"{100 * value:.2f}" for value in (point.auroc, point.accuracy))
            table.add_row(curve.contestant, f"{point.minutes:.1f}", str(point.steps), *percent)
    Console().print(table)
    lines = {c.contestant: [([p.minutes for p in c.points], [p.auroc for p in c.points])] for c in curves}
    write_text(args.out / "auroc.svg", standalone(curves_figure(lines, "minutes of training", "AUROC")))
    print(args.out / "auroc.svg")


def _knn(args: argparse.Namespace) -> None:
    from ..bench.knn import bench_knn

    sizes = (args.features, args.classes, args.dim, args.k, args.queries)
    result = bench_knn(*sizes, args.rounds, args.approximate)
    _print_rates("search", "queries/s", "x gradmix", result.queries, result.timings)
    print(f"memory for the search, beside the features: {result.peak_bytes / 2**20:.0f} MiB")
    if result.recall is not None and result.same_label is not None:
        print(
            f"ivf: {100 * result.recall:.2f} % of the {args.k} nearest found, "
            f"{100 * result.same_label:.2f} % of the labels are the exact ones"
        )


def _detectors(args: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from ..bench.detectors import bench_detectors

    rows = bench_detectors(args.train, args.test, args.dim, args.classes, args.detector or ())
    table = Table("detector", "fit s", "score s", "core-s", "loop s", "x loop", box=None)
    for row in rows:
        took = row.fit + row.score
        loop = ("–", "–") if row.loop is None else (f"{row.loop:.1f}", f"{took / row.loop:.3f}")
        table.add_row(row.name, f"{row.fit:.2f}", f"{row.score:.2f}", f"{row.cores:.2f}", *loop)
    Console().print(table)
    total, cores = sum(row.fit + row.score for row in rows), sum(row.cores for row in rows)
    sizes = f"{args.train:,} training and {args.test:,} test images of {args.dim} activations"
    print(f"all: {total:.1f} s, {cores:.1f} core-seconds, for {sizes}")
    print("loop: the same in numpy, image by image, from a few images")


def _extract(args: argparse.Namespace) -> None:
    from ..bench.extract import bench_extract

    timings = bench_extract(args.encoder, args.stem, args.image_size, args.images, args.rounds)
    _print_rates("extraction", "images/s", "x network alone", args.images, timings)


def _print_rates(what: str, rate: str, ratio: str, count: int, rows: list[Timing]) -> None:
    """Print speeds rather than times: a ratio above 1 is faster than the reference."""
    from rich.console import Console
    from rich.table import Table

    table = Table(what, rate, f"speed {ratio}", "middle half of the ratios", box=None)
    for row in rows:
        spread = f"{1 / row.high:.4g} to {1 / row.low:.4g}"
        table.add_row(row.name, f"{count / row.seconds:,.1f}", f"{1 / row.ratio:.4g}", spread)
    Console().print(table)
