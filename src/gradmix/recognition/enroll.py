"""Teach a recognizer a class, or make it forget one, without training: both return a new recognizer.

Both change the index of training features, and so need a decision by neighbours: the logits of a trained head
are of the classes that it was trained on, and no others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..data import ImageSet
from ..detection import KNN, Outputs
from ..detection.bank import unit_rows
from ..detection.outputs import require_finite
from ..errors import UserError, choose
from .calibration import recalibrate
from .class_bias import find_reach
from .model_checks import check_names
from .recognizer import Gallery, Recognizer


def enroll(recognizer: Recognizer, name: str, images: ImageSet, add: bool = False) -> Recognizer:
    """Add the features of ``images`` (one or more) to the index as class ``name``; reset the threshold.

    A name that is there already is refused, for two classes under one name could never be told apart
    again; with ``add`` the images join those of the class. Labels of ``images`` do not matter.

    If the model would not name one of them so, as where they are unlike each other, they become exemplars of
    the class (see :class:`..detection.KNN`): what was taught is recognized.
    """
    knn = _neighbours(recognizer)
    exists = name in recognizer.class_names
    check_names([*recognizer.class_names, *([] if exists else [name])])
    if exists and not add:
        raise UserError(
            f"the model knows a class '{name}' already; add the images to it with --add (add=True), "
            "or choose another name"
        )
    if not len(images):
        raise UserError(f"no images to enroll as '{name}'; one is enough, five to twenty are better")
    features = recognizer.outputs(images, f"features of '{name}'").features.cpu()
    new = unit_rows(require_finite(features, "features"))
    index = recognizer.index.state()
    label = recognizer.class_names.index(name) if exists else len(recognizer.class_names)
    class_names = recognizer.class_names if exists else (*recognizer.class_names, name)
    state = {
        "features": torch.cat([index["features"], new]),
        "labels": torch.cat([index["labels"], torch.full((len(new),), label)]),
        "num_classes": torch.tensor([len(class_names)]),
    }
    if "lengths" in index:
        state["lengths"] = torch.cat(
            [index["lengths"], torch.linalg.vector_norm(features.double(), dim=1).float()]
        )
    state |= {name: index[name] for name in ("exemplars", "exemplar_reach") if name in index}
    gallery = recognizer.gallery.join(
        Gallery.of(recognizer.convert(images)), len(index["labels"]), len(images)
    )
    known = replace(
        recognizer,
        **_with_index(recognizer, knn, state),
        class_names=class_names,
        gallery=gallery,
        enrolled_names=recognizer.enrolled_names if exists else (*recognizer.enrolled_names, name),
    )
    return _add_exemplars(recalibrate(known), knn, state, label, len(new))


def _add_exemplars(
    known: Recognizer, knn: KNN, state: dict[str, torch.Tensor], label: int, count: int
) -> Recognizer:
    """Return ``known`` with its last ``count`` images as exemplars, unless it names all of them ``label``."""
    first = len(state["labels"]) - count
    taught = Outputs(state["features"][first:], state["labels"][first:])
    if bool((known.decision.decide(taught).label == label).all()):
        return known
    new = torch.arange(first, first + count)
    reach = find_reach(taught.features, label, state, known.calibration)
    state = state | {
        "exemplars": torch.cat([state.get("exemplars", new[:0]), new]),
        "exemplar_reach": torch.cat(
            [state.get("exemplar_reach", torch.empty(0)), torch.full((count,), reach)]
        ),
    }
    return recalibrate(replace(known, **_with_index(known, knn, state)))


def forget(recognizer: Recognizer, name: str) -> Recognizer:
    """Remove class ``name``: its images leave the index, the held-out ones and the pictures.

    What the network learned from them, if it was trained on them, stays in its weights.
    """
    choose("class", name, recognizer.class_names)
    if len(recognizer.class_names) == 1:
        raise UserError(f"'{name}' is the last class of the model; delete the model's file instead")
    knn = _neighbours(recognizer)
    gone = recognizer.class_names.index(name)
    index = recognizer.index.state()
    keep = index["labels"] != gone
    state = {
        "features": index["features"][keep],
        "labels": _close_gap(index["labels"][keep], gone),
        "num_classes": torch.tensor([len(recognizer.class_names) - 1]),
    }
    if "lengths" in index:
        state["lengths"] = index["lengths"][keep]
    if "exemplars" in index:
        stay = keep[index["exemplars"]]
        state["exemplars"] = (keep.cumsum(dim=0) - 1)[index["exemplars"][stay]]
        state["exemplar_reach"] = index["exemplar_reach"][stay]
    known = replace(
        recognizer,
        **_with_index(recognizer, knn, state),
        class_names=tuple(n for n in recognizer.class_names if n != name),
        calibration=_without(recognizer.calibration, gone, trained=name not in recognizer.enrolled_names),
        gallery=recognizer.gallery.select(keep),
        enrolled_names=tuple(n for n in recognizer.enrolled_names if n != name),
    )
    return recalibrate(known)


def _without(held_out: Outputs | None, gone: int, trained: bool) -> Outputs | None:
    if held_out is None:
        return None
    keep = held_out.labels != gone
    if not bool(keep.any()):
        return None
    left = held_out.select(keep)
    left = replace(left, labels=_close_gap(left.labels, gone))
    # Without a trained class, the logits of the head are no longer those of the classes that are left.
    return replace(left, logits=None, extra={}, head=None) if trained else left


def _close_gap(labels: torch.Tensor, gone: int) -> torch.Tensor:
    """Return the labels without ``gone``: those above move down by one."""
    return torch.where(labels > gone, labels - 1, labels)


def _neighbours(recognizer: Recognizer) -> KNN:
    """Return the detector if it decides by neighbours; else raise one line about how to have it so."""
    detector = recognizer.decision.detector
    if not isinstance(detector, KNN):
        raise UserError(
            f"this model decides by '{detector.name}', which knows only the classes the network was trained "
            "on; let it decide by neighbours first: gradmix calibrate RUN --detector knn"
        )
    return detector


def _with_index(recognizer: Recognizer, knn: KNN, state: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return the fields of a recognizer whose index is ``state``, with a detector like ``knn`` on it."""
    index = KNN.from_state(state, recognizer.index.settings())
    return {
        "index": index,
        "decision": replace(recognizer.decision, detector=index.with_settings(**knn.settings())),
    }
