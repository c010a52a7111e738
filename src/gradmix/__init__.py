"""gradmix: image classifiers that know what they do not know.

>>> import gradmix
>>> gradmix.load_recipe("small").method
'gradmix'

The parts live in their rooms (``gradmix.losses``, ``gradmix.mixing``, …); what most people need is here,
and imported when first used, so that ``import gradmix`` and the command line's help stay quick.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_ROOM_OF = {
    "ImageSet": "data",
    "load_images": "data",
    "load_image_files": "data",
    "get_split": "data",
    "open_set_data": "data",
    "LayerCAM": "attribution",
    "GradCAM": "attribution",
    "GradMix": "mixing",
    "CutMix": "mixing",
    "Mixup": "mixing",
    "nt_xent": "losses",
    "supcon": "losses",
    "KNN": "detection",
    "load_recipe": "recipe",
    "Recognizer": "recognition",
    "fit": "recognition",
    "load": "recognition",
    "save": "recognition",
    "evaluate_open_set": "evaluation",
    "OpenSetClassifier": "estimator",
    "auroc": "evaluation",
    "oscr": "evaluation",
}

__all__ = ["__version__", *_ROOM_OF]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'gradmix' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_ROOM_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
