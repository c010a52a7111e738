"""Group the images that a model does not know: candidates for new classes.

  gradmix discover runs/photos new/ --out groups/
  gradmix enroll runs/photos --name zebra --group groups/3

For each group a folder groups/N with a contact sheet (sheet.png, the most typical first) and its files
(group.json); groups.json lists all, and what is in no group.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import add_backbone_arguments, read_backbone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a run folder, or its model.safetensors")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGES", help="image files and folders")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="a new folder")
    parser.add_argument("--min-size", type=int, default=5, metavar="N", help="smallest group (default 5)")
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")
    add_backbone_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..data import load_image_files
    from ..recognition import load
    from ..recognition.discover import check_free
    from ..report.group_sheets import write_groups

    check_free(args.out)
    recognizer = load(args.model, read_backbone(args))
    image_format = recognizer.image_format
    images, bad = load_image_files(
        args.images, size=image_format.size, channels=image_format.channels, skip_bad=args.skip_bad
    )
    found = recognizer.discover(images, args.min_size)
    write_groups(found, images, args.out)
    for number, group in enumerate(found.groups, start=1):
        alike = f"{group.cohesion:.2f} alike, most like {group.nearest}"
        print(f"{args.out / str(number)}: {len(group.members)} images, {alike}")
    print(
        f"{len(found.accepted)} of {len(images)} images are known; {len(found.left_over)} rejected ones are "
        "in no group" + (f"; {len(bad)} unreadable left out" if bad else ""),
        file=sys.stderr,
    )
    if not recognizer.threshold.guaranteed:
        print("note: this model rejects nothing yet; see: gradmix calibrate --help", file=sys.stderr)
    return 0
