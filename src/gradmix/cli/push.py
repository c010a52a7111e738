"""Upload a model to the Hugging Face Hub.

  gradmix push runs/photos me/otters --private
  gradmix predict hf://me/otters new/                # everywhere a run or model is asked for
  gradmix predict hf://me/otters@v1 new/             # a commit or tag of it

Uploads model.safetensors, recipe.yaml and a model card (README.md), and nothing else. The license is yours to
choose: write it into the card on the Hub. An existing card is kept.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import add_backbone_arguments, read_backbone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="RUN", help="a run folder, or its model.safetensors")
    parser.add_argument("repo", metavar="OWNER/NAME", help="the repository; created if it does not exist")
    parser.add_argument("--private", action="store_true", help="visible only to you or your organization")
    parser.add_argument(
        "--with-pictures",
        action="store_true",
        help="include the small pictures and file names of the training images",
    )
    parser.add_argument("--card", action="store_true", help="replace an existing card")
    add_backbone_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..hub import push_model

    done = push_model(
        args.model,
        args.repo,
        private=args.private,
        pictures=args.with_pictures,
        new_card=args.card,
        backbone=read_backbone(args),
    )
    if done.kept_card:
        print("the card that was there is kept; --card writes a new one", file=sys.stderr)
    if done.note:
        print(done.note, file=sys.stderr)
    print(f"hf://{args.repo}@{done.revision}")
    return 0
