"""Answers for any number of images in bounded memory: one for each input, in the order of the inputs.

The inputs are cut into batches at fixed places, wherever the work begins, because a network rounds
differently in batches of another size: so work that was stopped and taken up again ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from ..data import UNKNOWN, ImageSet
from ..recognition import Recognizer
from .decode_ahead import Batch, decoded_ahead
from .inputs import Inputs

_MOST_IMAGES = 256
_PIXELS_A_BATCH = 2**23  # 256 images of 181 x 181: the activations of a ResNet18 then stay below 2 GB
_DIGITS = 6


class Answer(NamedTuple):
    """One row: ``label`` is a class or "unknown", ``nearest`` the known class that it looks most like.

    Of an unreadable image all but ``file`` and ``error``, the reason, are None.
    """

    file: str
    label: str | None
    nearest: str | None
    score: float | None
    error: str | None


def batch_size(recognizer: Recognizer) -> int:
    """How many images the network sees at once: it depends on nothing but the size of its images."""
    return max(1, min(_MOST_IMAGES, _PIXELS_A_BATCH // recognizer.recipe.views.image_size**2))


def answers(recognizer: Recognizer, inputs: Inputs, first: int = 0) -> Iterator[list[Answer]]:
    """Batch by batch, one answer an input, from number ``first`` on, which begins a batch."""
    views = recognizer.recipe.views
    size = batch_size(recognizer)
    assert first % size == 0 or first == inputs.count
    for batch in decoded_ahead(inputs.batches(size, first), views.image_size, views.channels):
        yield answers_of(recognizer, batch)


def answers_of(recognizer: Recognizer, batch: Batch) -> list[Answer]:
    """The answers to one decoded batch."""
    images = ImageSet(batch.pixels, torch.full((len(batch.pixels),), UNKNOWN), ())
    found = recognizer.predict(images)
    named = zip(found.names(), found.nearest.tolist(), found.score.tolist(), strict=True)
    rows = []
    for file, reason in zip(batch.names, batch.reasons, strict=True):
        if reason is not None:
            rows.append(Answer(file, None, None, None, reason))
            continue
        label, nearest, score = next(named)
        rows.append(Answer(file, label, recognizer.class_names[nearest], round(score, _DIGITS), None))
    return rows
