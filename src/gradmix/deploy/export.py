"""A model for places without torch: an ONNX graph, its index as arrays, and forty lines that use them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..detection import KNN
from ..errors import UserError
from ..recognition import Recognizer
from .decision import Decision, decision
from .onnx_graph import Graph, write_graph

FORMAT = 1


def export_model(recognizer: Recognizer, out: str | Path, score: str = "") -> Path:
    """Write the folder ``out``: model.onnx, index.npz, settings.json, predict.py and README.md.

    ``score``: the model's own (default), or another, see :mod:`.decision`. The folder appears when it is
    whole; one that is there already is refused.
    """
    folder = Path(out)
    if folder.exists():
        raise UserError(f"{folder} exists already; choose another --out")
    chosen = decision(recognizer, score)
    views = recognizer.recipe.views
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
    try:
        graph = Graph(recognizer, chosen)
        write_graph(graph, views.image_size, views.channels, part / "model.onnx")
        np.savez(part / "index.npz", **_arrays(recognizer, chosen))
        settings = _settings(recognizer, chosen)
        (part / "settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        example = files(__package__).joinpath("onnx_predict.py").read_bytes()
        (part / "predict.py").write_bytes(example)
        (part / "README.md").write_text(_readme(recognizer, chosen), encoding="utf-8")
        part.chmod(0o755)  # mkdtemp's is for the owner alone
        os.rename(part, folder)  # noqa: PTH104 (as os.replace, it says what it does)
    except OSError as error:
        raise UserError(f"could not write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _arrays(recognizer: Recognizer, chosen: Decision) -> dict[str, Any]:
    """Plain arrays, none of which needs pickle."""
    classes = len(recognizer.class_names)
    arrays = {
        "class_names": np.array(recognizer.class_names, dtype=np.str_),
        "thresholds": chosen.thresholds(classes).numpy(),
    }
    if isinstance(chosen.detector, KNN):
        index = chosen.detector.state()
        labels = index["labels"].cpu().numpy()
        order = np.argsort(labels, kind="stable")
        arrays["features"] = index["features"].cpu().numpy()[order]
        arrays["offsets"] = np.searchsorted(labels[order], np.arange(classes + 1))
        arrays["head_start"] = np.array(chosen.head_start or (0.0,) * classes)
    return arrays


def _settings(recognizer: Recognizer, chosen: Decision) -> dict[str, Any]:
    views = recognizer.recipe.views
    settings: dict[str, Any] = {
        "format": FORMAT,
        "gradmix": __version__,
        "image_size": views.image_size,
        "channels": views.channels,
        "score": chosen.detector.name,
    }
    if isinstance(chosen.detector, KNN):
        knn = chosen.detector
        # A share among one class says nothing: there the mean similarity is the score (known_score).
        alone = len(recognizer.class_names) == 1 and knn.normalize in ("shifted", "softmax")
        normalize = "mean" if alone else knn.normalize
        settings["knn"] = {"k": knn.k, "normalize": normalize, "temperature": knn.temperature}
    return settings


def _readme(recognizer: Recognizer, chosen: Decision) -> str:
    views, knn = recognizer.recipe.views, isinstance(chosen.detector, KNN)
    size, channels = views.image_size, views.channels
    gives = "`features` (N, d) float32" if knn else "`score` (N,) float64 and `nearest` (N,) int64"
    rows = {
        "class_names": "(C,) text",
        "thresholds": "(C,) float64: an image taken for a class is known from this score on",
    }
    if knn:
        rows |= {
            "features": "(M, d) float32: unit features of the training images, class by class",
            "offsets": "(C+1,) int64: class c is rows offsets[c] to offsets[c+1]",
            "head_start": "(C,) float64: added to the similarity to a class (0 but for enrolled ones)",
        }
    table = "\n".join(f"| {name} | {what} |" for name, what in rows.items())
    approximate = ""
    if knn and recognizer.knn.index != "exact":
        approximate = (
            "\nThe model searches its index approximately; here it is exact, so a few scores are higher.\n"
        )
    return f"""# A model exported by gradmix {__version__}
```
pip install onnxruntime numpy "pillow>=10.1"
python predict.py a.jpg b.png
```
prints a line of JSON an image: file, label (or "unknown"), the known class it looks most like, and the score
(higher is more likely known). The answers are those of `gradmix predict` to 1e-4; not so for grey images of
32 bits or floating point, which `predict.py` does not scale.

- `model.onnx`: `pixels` (N, {size}, {size}, {channels}) uint8 to {gives}, for any N.
  Normalising is part of it.
- `settings.json`: size, channels and the score ({chosen.detector.name}).
- `index.npz`:

| array | what |
|---|---|
{table}
{approximate}"""
