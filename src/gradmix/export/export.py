"""Write a model as an ONNX graph, its index as arrays, and a script of forty lines that uses them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..detection import KNN, Decision
from ..errors import UserError
from ..recognition import Recognizer
from .onnx_graph import Graph, write_graph

FORMAT = 1


def export_model(recognizer: Recognizer, out: str | Path, detector: str = "") -> Path:
    """Write the folder ``out``: model.onnx, index.npz, settings.json, predict.py and README.md.

    ``detector``: the model's own (default), or another, with a threshold of its own. The folder appears when
    it is complete; an existing one is refused.
    """
    folder = Path(out)
    if folder.exists():
        raise UserError(f"{folder} exists already; choose another --out")
    if detector:
        recognizer = recognizer.with_detector(detector)
    chosen, images = recognizer.decision, recognizer.image_format
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
    try:
        graph = Graph(recognizer, chosen)
        write_graph(graph, images.size, images.channels, part / "model.onnx")
        np.savez(part / "index.npz", **_make_arrays(recognizer, chosen))
        settings = _make_settings(recognizer, chosen)
        (part / "settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        example = files(__package__).joinpath("onnx_predict.py").read_bytes()
        (part / "predict.py").write_bytes(example)
        (part / "README.md").write_text(_make_readme(recognizer, chosen), encoding="utf-8")
        part.chmod(0o755)  # mkdtemp makes it readable by the owner only
        os.rename(part, folder)  # noqa: PTH104 (as os.replace)
    except OSError as error:
        raise UserError(f"could not write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _make_arrays(recognizer: Recognizer, chosen: Decision) -> dict[str, Any]:
    """Return the content of index.npz: plain arrays, none of which needs pickle."""
    classes = len(recognizer.class_names)
    arrays = {
        "class_names": np.array(recognizer.class_names, dtype=np.str_),
        "thresholds": chosen.threshold.of(torch.arange(classes)).numpy(),
    }
    if isinstance(chosen.detector, KNN):
        index = chosen.detector.state()
        labels = index["labels"].cpu().numpy()
        order = np.argsort(labels, kind="stable")
        arrays["features"] = index["features"].cpu().numpy()[order]
        arrays["offsets"] = np.searchsorted(labels[order], np.arange(classes + 1))
        alone = torch.zeros(len(labels), dtype=torch.bool)
        alone[index.get("exemplars", torch.empty(0, dtype=torch.int64))] = True
        arrays["exemplars"] = alone.numpy()[order]
        arrays["class_bias"] = np.array(chosen.class_bias or (0.0,) * classes)
    return arrays


def _make_settings(recognizer: Recognizer, chosen: Decision) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "format": FORMAT,
        "gradmix": __version__,
        "image_size": recognizer.image_format.size,
        "channels": recognizer.image_format.channels,
        "score": chosen.detector.name,
    }
    if isinstance(chosen.detector, KNN):
        knn = chosen.detector
        # With one class a share is always 1: the mean similarity is the score (known_score).
        one_class = len(recognizer.class_names) == 1 and knn.normalize in ("shifted", "softmax")
        normalize = "mean" if one_class else knn.normalize
        settings["knn"] = {"k": knn.k, "normalize": normalize, "temperature": knn.temperature}
    return settings


def _make_readme(recognizer: Recognizer, chosen: Decision) -> str:
    knn = isinstance(chosen.detector, KNN)
    size, channels = recognizer.image_format.size, recognizer.image_format.channels
    outputs = "`features` (N, d) float32" if knn else "`score` (N,) float64 and `nearest` (N,) int64"
    rows = {
        "class_names": "(C,) text",
        "thresholds": "(C,) float64: an image taken for a class is known from this score on",
    }
    if knn:
        rows |= {
            "features": "(M, d) float32: unit features of the training images, class by class",
            "offsets": "(C+1,) int64: class c is rows offsets[c] to offsets[c+1]",
            "exemplars": "(M,) bool: images that speak for their class alone, whatever the other neighbors",
            "class_bias": "(C,) float64: added to the similarity to a class (0 except for enrolled ones)",
        }
    table = "\n".join(f"| {name} | {content} |" for name, content in rows.items())
    approximate = ""
    if knn and recognizer.index.index != "exact":
        approximate = (
            "\nThe model searches its index approximately; here it is exact, so a few scores are higher.\n"
        )
    return f"""# A model exported by gradmix {__version__}
```
pip install onnxruntime numpy "pillow>=10.1"
python predict.py a.jpg b.png
```
prints one line of JSON per image: file, label (or "unknown"), the most similar known class, and the score
(higher is more likely known). A damaged image ends it with one line. The answers are those of
`gradmix predict` to 1e-4, except for grey images of 32 bits or floating point, which `predict.py` does not
scale.

- `model.onnx`: `pixels` (N, {size}, {size}, {channels}) uint8 to {outputs}, for any N.
  It normalizes the pixels itself.
- `settings.json`: size, channels and the score ({chosen.detector.name}).
- `index.npz`:

| array | content |
|---|---|
{table}
{approximate}"""
