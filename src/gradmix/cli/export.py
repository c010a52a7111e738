"""Write a model for use without torch: one ONNX file, and thirty lines of Python that use it.

  gradmix export runs/photos --out exported/
  gradmix export runs/photos --out exported/ --detector knn:sum   # another score, with its own threshold
  python exported/predict.py a.jpg b.png                          # needs onnxruntime, numpy and Pillow

The folder appears when it is complete. Its answers are those of 'gradmix predict' to 1e-4.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from . import add_backbone_arguments, read_backbone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", type=Path, metavar="RUN", help="a run folder, its model.safetensors, or hf://owner/name"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the new folder")
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
    from ..export import export_model
    from ..recognition import load

    print(export_model(load(args.model, read_backbone(args)), args.out, args.detector))
    return 0
