"""A recognizer as one .safetensors file: tensors, and JSON in its header. Nothing in it is ever executed.

One file, so that replacing it is one atomic move: nobody can see new weights with an old index.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..atomic import write_atomically
from ..detection import KNN, ClassThreshold, Outputs, Threshold
from ..errors import UserError
from ..hub_file import MODEL_FILE, fetched, hub_address
from ..training import make_recipe
from ..views import Normalizer
from .backbone import BACKBONE, Backbone, offered
from .frozen import network_of
from .gallery import Gallery
from .recognizer import Recognizer

FORMAT = 1
Identity = tuple[int, int, int]
_TRIES = 100  # to read a file that others are replacing
_NETWORK, _INDEX, _CALIBRATION, _GALLERY = "network.", "index.", "calibration.", "gallery."


def save(recognizer: Recognizer, path: str | Path, notes: Mapping[str, Any] | None = None) -> None:
    """Write it all to ``path``, atomically; ``notes`` are whatever else JSON can hold."""
    tensors: dict[str, Tensor] = {}
    tensors |= {
        _NETWORK + k: v.detach().cpu().contiguous() for k, v in recognizer.network.state_dict().items()
    }
    tensors |= {_INDEX + k: v.contiguous() for k, v in recognizer.knn.state().items()}
    tensors |= {_GALLERY + k: v for k, v in recognizer.gallery.state().items()}
    if recognizer.calibration is not None:
        tensors[_CALIBRATION + "features"] = recognizer.calibration.features.contiguous()
        tensors[_CALIBRATION + "labels"] = recognizer.calibration.labels.contiguous()
    encoder = recognizer.network.encoder
    about = {
        "format": FORMAT,
        "class_names": recognizer.class_names,
        "enrolled": recognizer.enrolled_names,
        "head_start": recognizer.head_start,
        "classifier": getattr(recognizer.network.classifier, "out_features", 0),
        # Weights are in here, so where they started from must not be read again on loading.
        "recipe": recognizer.recipe.flat() | {"init": "", "stem": encoder.stem},
        "normalizer": {"mean": recognizer.normalizer.mean, "std": recognizer.normalizer.std},
        "knn": recognizer.knn.settings(),
        "threshold": _plain(recognizer.threshold),
        "backbone": {"kind": encoder.kind, "layer": encoder.layer} if isinstance(encoder, Backbone) else None,
        "notes": dict(notes or {}),
    }

    def write(part: Path) -> None:
        try:
            save_file(tensors, part, metadata={"gradmix": json.dumps(about)})
        except SafetensorError as error:  # a full disk is reported as one of these
            raise OSError(None, str(error)) from error

    write_atomically(Path(path), write)


def load(path: str | Path, backbone: nn.Module | None = None) -> Recognizer:
    """A recognizer from its file, from the run folder that holds it, or from hf://owner/name on the Hub.

    ``backbone``: a module like the one it was made with, if it was made with one of the user's own; the
    weights come from the file.
    """
    recognizer, _ = load_with_notes(path, backbone)
    return recognizer


def load_with_notes(path: str | Path, backbone: nn.Module | None = None) -> tuple[Recognizer, dict[str, Any]]:
    """A recognizer, and the notes that it was saved with."""
    path = model_path(path)
    if not path.is_file():
        if (path.parent / "recipe.yaml").exists():
            raise UserError(
                f"the run in {path.parent} is not finished; go on with: "
                f"gradmix train --resume --out {path.parent}"
            )
        run = path.parent if path.suffix == ".safetensors" else path
        raise UserError(f"no model at {path}; train one with: gradmix train … --out {run}")
    about, tensors = _read(path)
    try:
        with offered(_backbone(about, backbone, path)):
            recipe = make_recipe(_without_init(about["recipe"]))
            network = network_of(recipe, about.get("classifier", len(about["class_names"])))
        class_names = tuple(str(name) for name in about["class_names"])
        network.load_state_dict(_below(_NETWORK, tensors))
        index = _below(_INDEX, tensors)
        knn = KNN.from_state(index, about["knn"])
        if int(index["num_classes"]) != len(class_names):
            raise ValueError(f"{int(index['num_classes'])} classes but {len(class_names)} class names")
        threshold = _threshold(about["threshold"])
        held_out = _below(_CALIBRATION, tensors)
        calibration = Outputs(held_out["features"], held_out["labels"]) if held_out else None
        gallery = Gallery.from_state(_below(_GALLERY, tensors), len(index["labels"]))
        head_start = tuple(float(b) for b in about.get("head_start", ()))
        if len(head_start) not in (0, len(class_names)):
            raise ValueError(f"{len(head_start)} head starts but {len(class_names)} class names")
        enrolled = tuple(name for name in class_names if name in about.get("enrolled", ()))
        normalizer = Normalizer(tuple(about["normalizer"]["mean"]), tuple(about["normalizer"]["std"]))
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        what = " ".join(str(error).split()[:40])
        raise UserError(f"{path} is not a whole gradmix model: {what}") from error
    network.eval()
    parts = (network, normalizer, knn, threshold, class_names, recipe, calibration, gallery, enrolled)
    return Recognizer(*parts, head_start), dict(about.get("notes", {}))


def model_path(path: str | Path) -> Path:
    """The model's file, given itself or the folder that holds it; one on the Hub is fetched."""
    address = hub_address(path)
    path = Path(path) if address is None else fetched(address)
    return path / MODEL_FILE if path.is_dir() else path


def _without_init(recipe: dict[str, Any]) -> dict[str, Any]:
    """All weights are in the file: what it says about others is not to be opened, nor fetched."""
    return recipe | ({"init": ""} if "init" in recipe else {})


def _backbone(about: dict[str, Any], module: nn.Module | None, path: Path) -> Backbone | None:
    """The user's module in the place of the one that the model was made with."""
    if about["recipe"].get("encoder") != BACKBONE:
        return None
    own = about["backbone"]
    if module is None:
        raise UserError(
            f"{path} was made with a backbone of the user's own ({own['kind']}); load it with backbone=…, a "
            "module like that one"
        )
    recipe = about["recipe"]
    return Backbone(copy.deepcopy(module), own["layer"], recipe["channels"], recipe["image_size"])


def _plain(t: Threshold) -> dict[str, Any]:
    """As JSON can hold it."""
    return {
        "value": _number(t.value),
        "false_reject": t.false_reject,
        "n": t.n,
        "guaranteed": t.guaranteed,
        "held_out": t.held_out,
        "per_class": t.per_class,
        "by_class": [[_number(c.value), c.n, c.guaranteed] for c in t.by_class],
        "spread": t.spread,
    }


def _threshold(plain: dict[str, Any]) -> Threshold:
    by_class = [ClassThreshold(_value(v), n, guaranteed) for v, n, guaranteed in plain.get("by_class", ())]
    return Threshold(
        _value(plain["value"]),
        plain["false_reject"],
        plain["n"],
        plain["guaranteed"],
        plain.get("held_out", True),
        plain.get("per_class", False),
        tuple(by_class),
        float(plain.get("spread", 0.0)),
    )


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no infinity


def _value(number: float | None) -> float:
    return -math.inf if number is None else float(number)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    header, tensors = _header_and_tensors(path)
    if "gradmix" not in header:
        raise UserError(f"{path} holds tensors, but not a gradmix model; published weights go into --init")
    try:
        about: dict[str, Any] = dict(json.loads(header["gradmix"]))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is not a whole gradmix model: its header is damaged") from error
    if about.get("format") != FORMAT:
        raise UserError(
            f"{path} has model format {about.get('format')}; this version of gradmix reads {FORMAT}"
        )
    return about, tensors


def _header_and_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Both of one and the same file, though somebody may be replacing it meanwhile.

    safetensors opens a file once for the header and once more, by its name, for the values. So what was
    read counts only if the name meant the same file before and after.
    """
    for _ in range(_TRIES):
        before = identity(path)
        failure = None
        try:
            with safe_open(path, framework="pt") as f:
                header = f.metadata() or {}
                tensors = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 - not a dict
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            failure = error
        if identity(path) != before:
            continue
        if failure:
            raise UserError(f"{path} is truncated or not a model file ({failure})") from failure
        return header, tensors
    raise UserError(f"{path} is replaced again and again; try later")


def identity(path: Path) -> Identity | None:
    """Changes whenever the file is replaced; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
