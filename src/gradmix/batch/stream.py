"""Predict any number of images in bounded memory: one answer per input, in the order of the inputs.

Batches begin at fixed positions, also after a restart: a network rounds differently in batches of another
size, and a resumed prediction must end in the same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..data import UNKNOWN, ImageSet, decode_many
from ..progress import no_progress
from ..recognition import Recognizer
from .inputs import Input, Inputs

_BATCHES_AHEAD = 2  # decoded while the network works, besides the current one
_MAX_IMAGES = 256
_PIXELS_PER_BATCH = 2**23  # 256 images of 181 x 181: the activations of a ResNet18 then stay below 2 GB
_DIGITS = 6


class Answer(NamedTuple):
    """The answer for one image: ``label`` is a class or "unknown", ``nearest`` the most similar known class.

    For an unreadable image ``error`` is the reason, and ``label``, ``nearest`` and ``score`` are None.
    """

    file: str
    label: str | None
    nearest: str | None
    score: float | None
    error: str | None


def choose_batch_size(recognizer: Recognizer) -> int:
    """Return the number of images per batch; it depends on nothing but the image size."""
    return max(1, min(_MAX_IMAGES, _PIXELS_PER_BATCH // recognizer.image_format.size**2))


def predict_batches(recognizer: Recognizer, inputs: Inputs, first: int = 0) -> Iterator[list[Answer]]:
    """Yield one answer per input, batch by batch; ``first`` must be the beginning of a batch."""
    images = recognizer.image_format
    size = choose_batch_size(recognizer)
    assert first % size == 0 or first == inputs.count
    for batch in decode_ahead(inputs.batches(size, first), images.size, images.channels):
        yield predict_batch(recognizer, batch)


def predict_batch(recognizer: Recognizer, batch: Batch) -> list[Answer]:
    """Predict one decoded batch."""
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


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs, pixels (n, C, size, size) uint8 of the readable ones, and why the others cannot be read.

    ``reasons``: one per input, None where it is readable.
    """

    names: tuple[str, ...]
    pixels: Tensor
    reasons: tuple[str | None, ...]


def decode_batch(inputs: Sequence[Input], size: int, channels: int) -> Batch:
    """Decode a batch to squares of ``size`` pixels, in threads."""
    names = tuple(item.name for item in inputs)
    found = decode_many([item.path for item in inputs], names, size=size, channels=channels, bar=no_progress)
    pixels = found.images[:]
    reasons: list[str | None] = [None] * len(inputs)
    readable = set(found.kept.tolist())
    for row, bad in zip((i for i in range(len(inputs)) if i not in readable), found.bad, strict=True):
        # The row names the file; a reason with a path in it would differ between machines.
        reasons[row] = " ".join(bad.reason.replace(f": {str(inputs[row].path)!r}", "").split())
    return Batch(names, pixels, tuple(reasons))


def decode_ahead(batches: Iterable[Sequence[Input]], size: int, channels: int) -> Iterator[Batch]:
    """Yield the batches in order, each decoded in the background some batches before it is needed.

    One thread takes batch after batch; within a batch, as many threads decode as there are cores.
    """
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(1) as background:
        try:
            for batch in batches:
                waiting.append(background.submit(decode_batch, batch, size, channels))
                if len(waiting) > _BATCHES_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for unwanted in waiting:  # the reader stopped early
                unwanted.cancel()
