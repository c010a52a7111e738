"""Train on 5,000 handwritten digits that are included: six digits known, four never shown.

  gradmix demo
  gradmix demo --out demo --fresh

Takes about three minutes on two CPU cores, prints how well known and unknown are told apart, and writes
a page to look at. Run again, it shows the trained model's results at once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("gradmix-demo"), help="folder (default gradmix-demo)"
    )
    parser.add_argument("--fresh", action="store_true", help="train again, even if there is a trained model")


TAKES_RECIPE_FIELDS = True


def run(args: argparse.Namespace) -> int:
    from ..demo import run_demo
    from ..training import Interrupted
    from .results import print_metrics

    try:
        result = run_demo(args.out, fresh=args.fresh, overrides=args.recipe_fields)
    except Interrupted as stop:
        print(f"{stop}; run the same command to go on", file=sys.stderr)
        return 130
    print_metrics(result)
    print(f"open {args.out / 'report.html'} in a browser", file=sys.stderr)
    return 0
