"""A recognizer as one .safetensors file: tensors, and JSON in its header. Nothing in it is ever executed.

One file, so that replacing it is one atomic move: nobody can see new weights with an old index.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..atomic import write_atomically
from ..detection import KNN, Threshold
from ..errors import UserError
from ..training import make_recipe
from ..training.session import build_network
from ..views import Normalizer
from .recognizer import Recognizer

FORMAT = 1
_NETWORK, _INDEX = "network.", "index."


def save(recognizer: Recognizer, path: str | Path) -> None:
    """Write it all to ``path``, atomically."""
    tensors: dict[str, Tensor] = {}
    tensors |= {
        _NETWORK + k: v.detach().cpu().contiguous() for k, v in recognizer.network.state_dict().items()
    }
    tensors |= {_INDEX + k: v.contiguous() for k, v in recognizer.knn.state().items()}
    t = recognizer.threshold
    about = {
        "format": FORMAT,
        "class_names": recognizer.class_names,
        # Weights are in here, so where they started from must not be read again on loading.
        "recipe": recognizer.recipe.flat() | {"init": "", "stem": recognizer.network.encoder.stem},
        "normalizer": {"mean": recognizer.normalizer.mean, "std": recognizer.normalizer.std},
        "knn": recognizer.knn.settings(),
        "threshold": {
            "value": t.value if math.isfinite(t.value) else None,  # JSON has no infinity
            "false_reject": t.false_reject,
            "n": t.n,
            "guaranteed": t.guaranteed,
        },
    }

    def write(part: Path) -> None:
        try:
            save_file(tensors, part, metadata={"gradmix": json.dumps(about)})
        except SafetensorError as error:  # a full disk is reported as one of these
            raise OSError(None, str(error)) from error

    write_atomically(Path(path), write)


def load(path: str | Path) -> Recognizer:
    """A recognizer from its file, or from the run folder that holds it."""
    path = Path(path)
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        if (path.parent / "recipe.yaml").exists():
            raise UserError(
                f"the run in {path.parent} is not finished; go on with: "
                f"gradmix train --resume --out {path.parent}"
            )
        raise UserError(f"no model at {path}; train one with: gradmix train … --out {path.parent}")
    about, tensors = _read(path)
    try:
        recipe = make_recipe(about["recipe"])
        class_names = tuple(str(name) for name in about["class_names"])
        network = build_network(recipe, len(class_names))
        network.load_state_dict(_below(_NETWORK, tensors))
        index = _below(_INDEX, tensors)
        knn = KNN.from_state(index, about["knn"])
        if int(index["num_classes"]) != len(class_names):
            raise ValueError(f"{int(index['num_classes'])} classes but {len(class_names)} class names")
        t = about["threshold"]
        value = -math.inf if t["value"] is None else float(t["value"])
        threshold = Threshold(value, t["false_reject"], t["n"], t["guaranteed"])
        normalizer = Normalizer(tuple(about["normalizer"]["mean"]), tuple(about["normalizer"]["std"]))
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        what = " ".join(str(error).split()[:40])
        raise UserError(f"{path} is not a whole gradmix model: {what}") from error
    network.eval()
    return Recognizer(network, normalizer, knn, threshold, class_names, recipe)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as f:
            header = f.metadata() or {}
            tensors = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is truncated or not a model file ({error})") from error
    if "gradmix" not in header:
        raise UserError(f"{path} holds tensors, but not a gradmix model; published weights go into --init")
    try:
        about: dict[str, Any] = dict(json.loads(header["gradmix"]))
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is not a whole gradmix model: its header is damaged") from error
    if about.get("format") != FORMAT:
        raise UserError(
            f"{path} has model format {about.get('format')}; this version of gradmix reads {FORMAT}"
        )
    return about, tensors


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
