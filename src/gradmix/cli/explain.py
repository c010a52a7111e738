"""Show why images were named, or called unknown.

  gradmix explain runs/photos a.jpg b.jpg --out why/
  gradmix explain runs/photos a.jpg --out why/ --false-reject 0.01   # at another rate; the model stays

For each image a PNG: where the network looked, the nearest training images of the nearest classes, the score
and the threshold; and for all of them one page (explain.html) and the data (explain.json).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import add_backbone_arguments, read_backbone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a run folder, or its model.safetensors")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE", help="image files and folders")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where to write to")
    parser.add_argument("--classes", type=int, default=3, metavar="N", help="classes shown (default 3)")
    parser.add_argument(
        "--neighbors", "--neighbours", type=int, default=5, metavar="N", help="images per class (default 5)"
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")
    parser.add_argument(
        "--false-reject", type=float, metavar="RATE", help="reject another share of known images"
    )
    add_backbone_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..data import load_image_files
    from ..recognition import load
    from ..report.explanation_page import verdict, write_explanations

    recognizer = load(args.model, read_backbone(args))
    if args.false_reject is not None:
        recognizer = recognizer.at_rate(args.false_reject)
    image_format = recognizer.image_format
    images, bad = load_image_files(
        args.images, size=image_format.size, channels=image_format.channels, skip_bad=args.skip_bad
    )
    explanations = recognizer.explain(images, args.classes, args.neighbors)
    files = write_explanations(explanations, args.out, f"Why: {args.model}")
    for explanation in explanations:
        print(f"{explanation.source}: {verdict(explanation)}")
    if bad:
        print(f"left out {len(bad)} unreadable images", file=sys.stderr)
    print(files[0])
    return 0
