"""Make a model forget a class.

  gradmix forget runs/photos --name zebra

Its images leave the index, the held-out ones and the pictures in the model's file, which is replaced in one
step. What the network learned from them, if it was trained on them, stays in its weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import add_backbone_arguments, read_backbone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a run folder, or its model.safetensors")
    parser.add_argument("--name", required=True, help="the class to forget")
    add_backbone_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..recognition import update_model

    changed = update_model(args.model, lambda recognizer: recognizer.forget(args.name), read_backbone(args))
    print(f"{args.name} is forgotten; the model knows {len(changed.class_names)} classes")
    if note := changed.threshold.describe_limit():
        print(f"note: {note}; see: gradmix calibrate --help", file=sys.stderr)
    return 0
