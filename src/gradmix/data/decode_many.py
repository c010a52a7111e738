"""Many encoded images into one tensor: threads, progress, and a list of those that are broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

import numpy as np
import torch
from torch import Tensor

from ..cores import cores
from ..errors import UserError
from ..progress import Advance, progress
from .decode import Unreadable, bombs_refused, decode, open_image, upright_size
from .mapped_images import Pixels
from .resize import is_grey, to_grey

LARGEST_CHOSEN_SIZE = 64
_IMAGES_A_TASK = 64  # a future per image would cost more than decoding a small one
Source = Path | bytes
Bar = Callable[[str, int], AbstractContextManager[Advance]]


@dataclass(frozen=True)
class BadImage:
    """An image that could not be read: ``name`` (its path or row) and the ``reason``."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} {self.reason}"


class MixedShapes(Exception):
    """The images were said to have one size, and do not."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """``images`` (n, C, H, W) uint8; ``kept`` (n,) says which of the sources each is; the rest is ``bad``."""

    images: Pixels
    kept: Tensor
    bad: tuple[BadImage, ...] = ()


def decode_many(
    sources: Sequence[Source],
    names: Sequence[str],
    shape: tuple[int, int] | None = None,
    size: int | None = None,
    channels: int | None = None,
    bar: Bar = progress,
) -> Decoded:
    """Decode all of ``sources``; the result does not depend on the order in which threads finish.

    ``shape`` promises that all are H × W already (MixedShapes is raised if not). Otherwise each becomes a
    size × size square, where ``size`` None stands for :func:`sensible_size`. ``channels`` None is 1 if every
    single image is grey, else 3. ``bar`` shows the progress; a part of a longer work has that one's.
    """
    bad: dict[int, str] = {}
    if shape is None and size is None:
        size, bad = sensible_size(sources)
    height, width = shape or (size, size)
    assert height is not None
    assert width is not None
    pixels = np.zeros((len(sources), height, width, 3 if channels is None else channels), dtype=np.uint8)
    mode = "L" if channels == 1 else "RGB"

    def decode_into(i: int) -> None:
        image = decode(sources[i], None if shape else size)
        if image.size != (width, height):
            raise MixedShapes
        plain = np.asarray(image if image.mode == mode else image.convert(mode))
        pixels[i] = plain if plain.ndim == 3 else plain[..., None]

    bad |= _for_each(decode_into, [i for i in range(len(sources)) if i not in bad], "decoding images", bar)
    kept = np.array([i for i in range(len(sources)) if i not in bad], dtype=np.int64)
    if bad:
        pixels = pixels[kept]
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    if channels is None and len(images) and is_grey(images):
        images = to_grey(images)
    return Decoded(images, torch.from_numpy(kept), tuple(BadImage(names[i], bad[i]) for i in sorted(bad)))


def sensible_size(sources: Sequence[Source]) -> tuple[int, dict[int, str]]:
    """The median shorter side, but at most 64 pixels; and which images cannot even be opened."""
    shapes, bad = image_shapes(sources)
    sides = [min(shape) for shape in shapes if shape is not None]
    return min(LARGEST_CHOSEN_SIZE, median_low(sides)) if sides else LARGEST_CHOSEN_SIZE, bad


def image_shapes(sources: Sequence[Source]) -> tuple[list[tuple[int, int] | None], dict[int, str]]:
    """(height, width) of each image, from its header alone; None where it is bad, with the reason."""
    shapes: list[tuple[int, int] | None] = [None] * len(sources)

    def look(i: int) -> None:
        with open_image(sources[i]) as image:
            shapes[i] = upright_size(image)

    bad = _for_each(look, range(len(sources)), "looking at image sizes")
    return shapes, bad


def refuse_or_skip(bad: Sequence[BadImage], skip_bad: bool) -> None:
    """Raise for the first bad image, unless they are to be skipped."""
    if bad and not skip_bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise UserError(f"{bad[0]}{more}; --skip-bad (skip_bad=True) goes on without")


def _for_each(
    work: Callable[[int], None], indices: Sequence[int], what: str, bar: Bar = progress
) -> dict[int, str]:
    """Call ``work(i)`` for all, in threads; return the reason for each i that was Unreadable."""
    bad: dict[int, str] = {}

    def work_on(part: Sequence[int]) -> int:
        for i in part:
            try:
                work(i)
            except Unreadable as reason:
                bad[i] = str(reason)
        return len(part)

    parts = [indices[i : i + _IMAGES_A_TASK] for i in range(0, len(indices), _IMAGES_A_TASK)]
    workers = min(8, cores())
    with bombs_refused(), bar(what, len(indices)) as advance, ThreadPoolExecutor(workers) as pool:
        try:
            for done in pool.map(work_on, parts):
                advance(done)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # Ctrl-C must not wait for a hundred thousand images
            raise
    return bad
