"""Full-spectrum evaluation: known images under the fifteen corruptions are known, too.

A detector that takes a blurred photo of a known class for an unknown one looks well on clean test images
alone (Yang et al. 2022, "Full-spectrum out-of-distribution detection").
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ..data import ImageSet
from ..data.corruptions import CORRUPTIONS, SEVERITIES, corrupt, load_frost
from ..detection import Outputs
from ..errors import UserError
from ..progress import progress
from ..recognition import Recognizer

SEVERITY = 3  # of 1 to 5, if none is named
_SEED = 0
_IMAGES_AT_ONCE = 2048  # corrupted and passed on before the next ones: only outputs are kept


def check_severity(severity: int) -> int:
    """Return ``severity``; raise UserError if there is none like that."""
    if severity not in SEVERITIES:
        raise UserError(f"severity must be one of {SEVERITIES[0]} to {SEVERITIES[-1]}, not {severity}")
    return severity


def add_corrupted(
    recognizer: Recognizer, images: ImageSet, clean: Outputs, severity: int = SEVERITY
) -> Outputs:
    """Return ``clean``, the outputs for ``images``, followed by those for each corruption of them in turn.

    (N, …) becomes (16 N, …), with the labels repeated. The images are corrupted in the size in which the
    network sees them, always with the same seed, so that two networks see the same ones.
    """
    check_severity(severity)
    ready = recognizer.convert(images)
    pictures = load_frost()
    if pictures.generated:
        warnings.warn(
            "no frost pictures found, so the frost is generated; results are not comparable with published "
            "ones (put them in $GRADMIX_DATA/frost)",
            stacklevel=3,
        )
    found = [clean]
    what = f"known images under {len(CORRUPTIONS)} corruptions"
    with progress(what, len(CORRUPTIONS) * len(ready)) as advance:
        for name in CORRUPTIONS:
            for first in range(0, len(ready), _IMAGES_AT_ONCE):
                rows = slice(first, min(first + _IMAGES_AT_ONCE, len(ready)))
                changed = corrupt(ready.images[rows], name, severity, _SEED, pictures, first)
                part = ImageSet(changed, ready.labels[rows], ready.class_names)
                found.append(recognizer.outputs(part, penultimate=True))
                advance(len(part), note=name)
    return join_outputs(found)


def join_outputs(parts: list[Outputs]) -> Outputs:
    """Return the outputs for several sets of images as those for one, in order.

    What is no tensor of rows (a head's weights, or nothing) is the same for all, and taken from the first.
    """

    def join(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], Tensor):
            return torch.cat(values)
        if isinstance(values[0], Mapping):
            return {key: torch.cat([value[key] for value in values]) for key in values[0]}
        return values[0]

    return Outputs(**{part.name: join(part.name) for part in fields(Outputs)})
