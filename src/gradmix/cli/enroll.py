"""Teach a model a new class from one image or more, without training.

  gradmix enroll runs/photos --name zebra zebras/*.jpg
  gradmix enroll runs/photos --name zebra --group groups/3      # of 'gradmix discover'

The images' features go into the model's index; the network stays as it is. The model's file is replaced in
one step: whoever reads it sees the old model or the new one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UserError
from . import add_backbone_arguments, read_backbone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a run folder, or its model.safetensors")
    images = parser.add_argument(
        "images", nargs="+", type=Path, metavar="IMAGES", help="image files and folders"
    )

    class Group(argparse.Action):
        """Takes the place of IMAGES. (As nargs="*" they would be taken for none before the first option.)"""

        def __call__(self, parser: object, found: argparse.Namespace, values: object, *_: object) -> None:
            found.group, images.required = values, False

    parser.add_argument("--name", required=True, help="what the class is called")
    parser.add_argument(
        "--group", action=Group, type=Path, metavar="DIR", help="… or a group that 'gradmix discover' made"
    )
    parser.add_argument("--add", action="store_true", help="add to the class if there is one of that name")
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")
    add_backbone_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..data import load_image_files
    from ..detection.threshold import needed_images
    from ..recognition import Recognizer, update_model
    from ..recognition.class_bias import MAX_LOST_SHARE, lost_share
    from ..recognition.discover import read_group_files

    if args.images and args.group:
        raise UserError("give the images of the class, or --group DIR, not both")
    paths = read_group_files(args.group) if args.group else args.images
    left_out = 0

    def change(recognizer: Recognizer) -> Recognizer:
        nonlocal left_out
        wanted = recognizer.image_format
        images, bad = load_image_files(
            paths, size=wanted.size, channels=wanted.channels, skip_bad=args.skip_bad
        )
        left_out = len(bad)
        return recognizer.enroll(args.name, images, add=args.add)

    changed = update_model(args.model, change, read_backbone(args))
    many = changed.count_images(args.name)
    skipped = f" ({left_out} unreadable left out)" if left_out else ""
    print(f"{args.name}: {many} images{skipped}; the model knows {len(changed.class_names)} classes")
    known = 0 if changed.calibration is None else len(changed.calibration.labels)
    if changed.decision.class_bias and 0 < known < needed_images(MAX_LOST_SHARE):
        print(
            f"note: up to {lost_share(known):.1%} of the images of other classes may go over to an enrolled "
            f"one: the model has {known} held-out images; {needed_images(MAX_LOST_SHARE)} would make it "
            f"{MAX_LOST_SHARE:.0%}"
        )
    return 0
