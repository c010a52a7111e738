"""Decode the next images while the network looks at these."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from torch import Tensor

from ..data.decode_many import decode_many
from ..progress import no_progress
from .inputs import Input

_BATCHES_AHEAD = 2  # decoded or being decoded: what memory holds beside the batch at work


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs, pixels (n, C, size, size) uint8 of those that can be read, and why the others cannot.

    ``reasons``: one an input, None where it is readable.
    """

    names: tuple[str, ...]
    pixels: Tensor
    reasons: tuple[str | None, ...]


def decoded(inputs: Sequence[Input], size: int, channels: int) -> Batch:
    """Decode a batch as squares, in threads."""
    names = tuple(item.name for item in inputs)
    found = decode_many([item.path for item in inputs], names, size=size, channels=channels, bar=no_progress)
    pixels = found.images[:]
    reasons: list[str | None] = [None] * len(inputs)
    readable = set(found.kept.tolist())
    for place, bad in zip((i for i in range(len(inputs)) if i not in readable), found.bad, strict=True):
        # The row says which file it is; the reason should not depend on where the work is done.
        reasons[place] = " ".join(bad.reason.replace(f": {str(inputs[place].path)!r}", "").split())
    return Batch(names, pixels, tuple(reasons))


def decoded_ahead(batches: Iterable[Sequence[Input]], size: int, channels: int) -> Iterator[Batch]:
    """The batches in order, each decoded in the background some batches before it is wanted.

    One thread asks for one batch after another; within a batch as many decode as there are cores.
    """
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(1) as background:
        try:
            for batch in batches:
                waiting.append(background.submit(decoded, batch, size, channels))
                if len(waiting) > _BATCHES_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for unwanted in waiting:  # of a reader that has stopped
                unwanted.cancel()
