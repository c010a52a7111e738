"""Write a model as one ONNX file, from pixels to the answer, and a short script that uses it."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..detection import KNN
from ..errors import UserError
from ..recognition import Recognizer
from .onnx_graph import Graph, write_graph

FORMAT = 2  # 1 had the index beside the graph


def export_model(recognizer: Recognizer, out: str | Path, detector: str = "") -> Path:
    """Write the folder ``out``: model.onnx, which answers by itself, predict.py and README.md.

    ``detector``: the model's own (default), or another, with a threshold of its own. The folder appears when
    it is complete; an existing one is refused.
    """
    if detector:
        recognizer = recognizer.with_detector(detector)
    with new_folder(Path(out)) as part:
        write_model(recognizer, part / "model.onnx")
        example = files(__package__).joinpath("onnx_predict.py").read_bytes()
        (part / "predict.py").write_bytes(example)
        (part / "README.md").write_text(_make_readme(recognizer), encoding="utf-8")
    return Path(out)


def write_model(recognizer: Recognizer, path: Path) -> dict[str, Any]:
    """Write the ONNX file, and return what it says about itself under the name "gradmix"."""
    settings, images = _make_settings(recognizer), recognizer.image_format
    graph = Graph(recognizer, recognizer.decision)
    write_graph(graph, images.size, images.channels, path, json.dumps(settings))
    return settings


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to fill, which gets its name when the block ends; an existing one is refused."""
    if folder.exists():
        raise UserError(f"{folder} exists already; choose another --out")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
    try:
        yield part
        part.chmod(0o755)  # mkdtemp makes it readable by the owner only
        os.rename(part, folder)  # noqa: PTH104 (as os.replace)
    except OSError as error:
        raise UserError(f"could not write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _make_settings(recognizer: Recognizer) -> dict[str, Any]:
    threshold = recognizer.threshold
    values = threshold.of(torch.arange(len(recognizer.class_names))).tolist()
    return {
        "format": FORMAT,
        "gradmix": __version__,
        "image_size": recognizer.image_format.size,
        "channels": recognizer.image_format.channels,
        "score": recognizer.decision.detector.name,
        "class_names": list(recognizer.class_names),
        "thresholds": [value if math.isfinite(value) else None for value in values],
        "false_reject": threshold.false_reject,
    }


def _make_readme(recognizer: Recognizer) -> str:
    size, channels = recognizer.image_format.size, recognizer.image_format.channels
    score = recognizer.decision.detector.name
    approximate = ""
    if score == KNN.name and recognizer.index.index != "exact":
        approximate = (
            "\nThe model searches its index approximately; here it is exact, so a few scores are higher.\n"
        )
    return f"""# A model exported by gradmix {__version__}
```
pip install onnxruntime numpy "pillow>=10.1"
python predict.py a.jpg b.png
```
prints one line of JSON per image: file, label (or "unknown"), the most similar known class, the score
(higher is more likely known) and the p-value (how unusual it is for a known image). A damaged image ends it
with one line. The answers are those of `gradmix predict` to 1e-4, except for grey images of 32 bits or
floating point, which `predict.py` does not scale.

`model.onnx` is all that is needed: `pixels` (N, {size}, {size}, {channels}) uint8, for any N, to

| output | content |
|---|---|
| score | (N,) float64, by `{score}`: higher is more likely known |
| nearest | (N,) int64: the most similar known class |
| label | (N,) int64: the same, or -1 for unknown |
| p_value | (N,) float64: the share of known images that look as unusual |

It normalizes the pixels, searches and decides by itself. Its metadata has, under the name `gradmix`, JSON
with `class_names`, `image_size`, `channels` and `thresholds` (an image taken for a class is known from this
score on; null: always).
{approximate}"""
