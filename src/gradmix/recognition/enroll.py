"""Teach a recognizer a class, or make it forget one, without training: both return a new recognizer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ..data import ImageSet
from ..detection import KNN, Outputs
from ..detection.bank import unit_rows
from ..detection.outputs import require_finite
from ..errors import UserError, choose
from .calibration import recalibrated
from .class_names import check_name
from .gallery import Gallery

if TYPE_CHECKING:
    from .recognizer import Recognizer


def enrolled(recognizer: Recognizer, name: str, images: ImageSet, add: bool = False) -> Recognizer:
    """The features of ``images`` (one or more) go into the index as class ``name``; the threshold is reset.

    A name that is there already is refused, for two classes under one name could never be told apart
    again; with ``add`` the images join those of the class. Labels of ``images`` do not matter.
    """
    exists = name in recognizer.class_names
    check_name(name)
    if exists and not add:
        raise UserError(
            f"the model knows a class '{name}' already; add the images to it with --add (add=True), "
            "or choose another name"
        )
    if not len(images):
        raise UserError(f"no images to enroll as '{name}'; one is enough, five to twenty are better")
    features = recognizer.outputs(images, f"features of '{name}'").features.cpu()
    new = unit_rows(require_finite(features, "features"))
    index = recognizer.knn.state()
    label = recognizer.class_names.index(name) if exists else len(recognizer.class_names)
    class_names = recognizer.class_names if exists else (*recognizer.class_names, name)
    state = {
        "features": torch.cat([index["features"], new]),
        "labels": torch.cat([index["labels"], torch.full((len(new),), label)]),
        "num_classes": torch.tensor([len(class_names)]),
    }
    gallery = recognizer.gallery.joined(
        Gallery.of(recognizer.fitted(images)), len(index["labels"]), len(images)
    )
    known = replace(
        recognizer,
        knn=KNN.from_state(state, recognizer.knn.settings()),
        class_names=class_names,
        gallery=gallery,
        enrolled_names=recognizer.enrolled_names if exists else (*recognizer.enrolled_names, name),
    )
    return recalibrated(known)


def forgotten(recognizer: Recognizer, name: str) -> Recognizer:
    """Without class ``name``: its images leave the index, the held-out ones and the pictures.

    What the network learned from them, if it was trained on them, stays in its weights.
    """
    choose("class", name, recognizer.class_names)
    if len(recognizer.class_names) == 1:
        raise UserError(f"'{name}' is the last class of the model; delete the model's file instead")
    gone = recognizer.class_names.index(name)
    index = recognizer.knn.state()
    keep = index["labels"] != gone
    state = {
        "features": index["features"][keep],
        "labels": _closed_up(index["labels"][keep], gone),
        "num_classes": torch.tensor([len(recognizer.class_names) - 1]),
    }
    known = replace(
        recognizer,
        knn=KNN.from_state(state, recognizer.knn.settings()),
        class_names=tuple(n for n in recognizer.class_names if n != name),
        calibration=_without(recognizer.calibration, gone),
        gallery=recognizer.gallery.select(keep),
        enrolled_names=tuple(n for n in recognizer.enrolled_names if n != name),
    )
    return recalibrated(known)


def _without(held_out: Outputs | None, gone: int) -> Outputs | None:
    if held_out is None:
        return None
    keep = held_out.labels != gone
    if not bool(keep.any()):
        return None
    return Outputs(held_out.features[keep], _closed_up(held_out.labels[keep], gone))


def _closed_up(labels: torch.Tensor, gone: int) -> torch.Tensor:
    """Labels without ``gone``: those above move down by one."""
    return torch.where(labels > gone, labels - 1, labels)
