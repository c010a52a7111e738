"""For people who have only arrays: numpy arrays or tensors into :class:`Outputs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from .outputs import HeadWeights, Outputs

Array = Tensor | NDArray[Any]


def outputs_of(
    features: Array | None = None,
    labels: Array | None = None,
    *,
    logits: Array | None = None,
    penultimate: Array | None = None,
    head: HeadWeights | tuple[Array, Array] | None = None,
    **extra: Array,
) -> Outputs:
    """Return the Outputs of arrays, one row per image; labels are -1 where none are given.

    Without ``features``, the penultimate activations are the features; without ``logits``, they are those of
    the ``head`` (W, b) on the penultimate activations.

    >>> outputs = outputs_of(penultimate=np.eye(2), head=(np.ones((3, 2)), np.zeros(3)))
    >>> sorted(outputs.parts), tuple(outputs.logits.shape), outputs.labels.tolist()
    (['features', 'head', 'logits', 'penultimate'], (2, 3), [-1, -1])
    """
    rows = {"features": features, "logits": logits, "penultimate": penultimate, **extra}
    given = {name: _to_tensor(name, values) for name, values in rows.items() if values is not None}
    if not given:
        raise UserError("no arrays to score; give features, logits, or penultimate and head")
    weights = _to_head(head)
    f, h = given.pop("logits", None), given.pop("penultimate", None)
    if f is None and h is not None and weights is not None:
        if h.ndim != 2 or h.shape[1] != weights.weight.shape[1]:
            raise UserError(
                f"penultimate is {tuple(h.shape)}, and the head takes {weights.weight.shape[1]} dimensions"
            )
        f = weights.logits(h)
    z = given.pop("features", h)
    if z is None:  # a score of logits alone
        some = f if f is not None else next(iter(given.values()))
        z = torch.empty((len(some), 0), dtype=torch.float32, device=some.device)
    y = torch.full((len(z),), -1, device=z.device) if labels is None else _to_labels(labels, z.device)
    return Outputs(z, y, f, given, h, weights)


def read_outputs(given: Outputs | Array | None, parts: Mapping[str, Any] | None) -> Outputs:
    """Return ``given`` if it is Outputs, else the Outputs of the arrays."""
    if not isinstance(given, Outputs):
        if given is not None and "features" in (parts or {}):
            raise UserError("features are given twice")
        named: dict[str, Any] = {**(parts or {}), **({} if given is None else {"features": given})}
        return outputs_of(**named)
    if parts:
        raise UserError(f"'{next(iter(parts))}' is a part of the outputs; give outputs or arrays, not both")
    return given


def read_training(
    given: Outputs | Array | None, second: int | Array | None, parts: Mapping[str, Any]
) -> tuple[Outputs, int]:
    """Return outputs and the number of classes: ``second`` is that number, or the labels of arrays."""
    if second is not None and not isinstance(second, int | np.integer):
        if isinstance(given, Outputs):
            raise UserError("outputs have labels of their own; the second argument is the number of classes")
        if "labels" in parts:
            raise UserError("labels are given twice")
        parts, second = {**parts, "labels": second}, None
    outputs = read_outputs(given, parts)
    if second is None:
        second = int(outputs.labels.max()) + 1 if len(outputs.labels) else 0
        if second < 1 and len(outputs.labels):
            raise UserError("training images need labels 0, 1, …: fit(features, labels)")
    return outputs, int(second)


def _to_tensor(name: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        found = values.detach()
    else:
        array = np.asarray(values)
        if array.dtype == object:
            raise UserError(f"{name} must be an array of numbers, one row per image")
        found = torch.from_numpy(array if array.flags.writeable else array.copy())
    if found.ndim < 2:
        raise UserError(f"{name} must have one row per image, not the shape {tuple(found.shape)}")
    return found if found.dtype in (torch.float32, torch.float64) else found.float()


def _to_labels(labels: Any, device: torch.device) -> Tensor:
    found = labels.detach() if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    if found.ndim != 1 or found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise UserError("labels must be whole numbers 0, 1, …, one per image")
    return found.to(device, torch.int64)


def _to_head(head: HeadWeights | tuple[Array, Array] | None) -> HeadWeights | None:
    if head is None or isinstance(head, HeadWeights):
        return head
    try:
        weight, bias = head
    except (TypeError, ValueError):
        raise UserError("head must be a pair: weights (classes, dimensions) and biases (classes,)") from None
    return HeadWeights(_to_tensor("the head's weight", weight), _to_bias(bias))


def _to_bias(bias: Any) -> Tensor:
    found = bias.detach() if isinstance(bias, Tensor) else torch.from_numpy(np.array(bias))
    return found if found.dtype in (torch.float32, torch.float64) else found.float()
