"""Write a model for use without torch: one ONNX file, and thirty lines of Python that use it.

  gradmix export runs/photos --out exported/
  gradmix export runs/photos --out exported/ --detector knn:sum   # another score, with its own threshold
  python exported/predict.py a.jpg b.png                          # needs onnxruntime, numpy and Pillow
  gradmix export runs/photos --web page/                          # a page that answers in the browser
  python -m http.server --directory page/                         # or any other file server

The folder appears when it is complete. Its answers are those of 'gradmix predict' to 1e-4.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UserError
from . import add_backbone_arguments, read_backbone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", type=Path, metavar="RUN", help="a run folder, its model.safetensors, or hf://owner/name"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, metavar="DIR", help="the new folder")
    where.add_argument("--web", type=Path, metavar="DIR", help="the new folder, as a page of static files")
    parser.add_argument(
        "--runtime",
        type=Path,
        metavar="DIR",
        help="for --web: an unpacked npm package onnxruntime-web (default: npm fetches it)",
    )
    parser.add_argument(
        "--detector",
        "--score",
        dest="detector",
        default="",
        help="any score but knn_distance, relation and sums with knn: knn:sum, nno, mls, vim, placeholder, … "
        "(default: the model's own)",
    )
    add_backbone_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..export import export_model, export_web
    from ..recognition import load

    if args.runtime and not args.web:
        raise UserError("--runtime goes with --web")
    recognizer = load(args.model, read_backbone(args))
    if args.web:
        print(export_web(recognizer, args.web, args.detector, args.runtime or ""))
    else:
        print(export_model(recognizer, args.out, args.detector))
    return 0
