"""Predict any number of images in bounded memory: one answer per input, in the order of the inputs.

The list of images is kept on disk, because it may be larger than memory. It is complete before the first
image is read: their number is known, a list from a pipe can be read twice, and files that appear or vanish
meanwhile change nothing. ``digest`` identifies the list: an interrupted prediction resumes only with the
same one.

Batches begin at fixed positions, also after a restart: a network rounds differently in batches of another
size, and a resumed prediction must end in the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import torch
from torch import Tensor

from ..data import UNKNOWN, ImageSet, decode_many, is_archive, is_hidden, is_image_name, unpack_archive
from ..data.file_names import EXTENSIONS, count_ignored, describe_ignored
from ..detection.false_discoveries import check_fdr
from ..detection.threshold import needed_images
from ..errors import UserError
from ..progress import no_progress
from ..recognition import Recognizer

_BATCHES_AHEAD = 2  # decoded while the network works, besides the current one
_MAX_IMAGES = 256
_PIXELS_PER_BATCH = 2**23  # 256 images of 181 x 181: the activations of a ResNet18 then stay below 2 GB
_DIGITS = 6


# The images to predict


@dataclass(frozen=True)
class Input:
    """An image to predict: its name in the answers (always valid UTF-8), and its file."""

    name: str
    path: Path


class Inputs:
    """The images of files, folders and archives, or of a list. Only one reader at a time."""

    def __init__(self, found: Iterable[Input]) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
        weakref.finalize(self, _close, self._file)
        digest = hashlib.sha256()
        self.count = 0
        for item in found:
            # JSON's escapes keep a line break or a stray byte in a name from breaking the list.
            line = json.dumps([item.name, str(item.path)]).encode()
            self._write(line + b"\n")
            digest.update(json.dumps(item.name).encode() + b"\n")
            self.count += 1
        self._write(b"")
        self.digest = digest.hexdigest()

    def _write(self, line: bytes) -> None:
        """Append a line to the list; an empty one flushes."""
        try:
            self._file.write(line) if line else self._file.flush()
        except OSError as error:
            raise UserError(
                f"the list of images does not fit into {tempfile.gettempdir()} ({error.strerror}); "
                "TMPDIR can name another place"
            ) from error

    @staticmethod
    def from_paths(paths: Sequence[Path]) -> Inputs:
        """List files as given, and the images in folders and archives, sorted by path."""
        for path in paths:  # before any is searched: report a misspelt path at once
            if not path.exists():
                raise UserError(f"no such file or folder: {path}")
        return Inputs(item for path in paths for item in _find_images(path))

    @staticmethod
    def from_lines(lines: Iterable[bytes], where: str) -> Inputs:
        """Read one file name per line; a missing file is an unreadable image, not an error."""
        names = (os.fsdecode(line.rstrip(b"\r\n")) for line in lines)
        inputs = Inputs(Input(_to_utf8(name), Path(name)) for name in names if name)
        if not inputs.count:
            raise UserError(f"{where} names no images; give one file per line")
        return inputs

    def batches(self, size: int, first: int = 0) -> Iterator[list[Input]]:
        """Yield the inputs from number ``first`` on, ``size`` at a time."""
        self._file.seek(0)
        lines = islice(self._file, first, None)
        while some := list(islice(lines, size)):
            yield [Input(name, Path(path)) for name, path in map(json.loads, some)]


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # the disk was full, which has been reported
        file.close()


def walk_images(folder: str, ignored: Counter[str] | None = None) -> Iterator[str]:
    """Yield what :func:`~gradmix.data.readers.image_files.find_images` lists, with one folder in memory.

    Other files are counted in ``ignored``, by their endings.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries)
    except OSError as error:
        raise UserError(f"{folder} may not be listed ({error.strerror})") from error
    for name, is_folder, is_link in found:
        path = os.path.join(folder, name)  # noqa: PTH118 - a Path for each of a million would take longer
        if is_folder:
            if not is_hidden(name) and not is_link:
                yield from walk_images(path, ignored)
        elif is_image_name(name):
            yield path
        elif ignored is not None:
            count_ignored(name, ignored)


def _find_images(path: Path) -> Iterator[Input]:
    # Most are images, by their names: these are not looked at twice.
    archive = path.suffix.lower() not in EXTENSIONS and path.is_file() and is_archive(path)
    if not archive and not path.is_dir():
        yield Input(_to_utf8(str(path)), path)
        return
    folder = str(unpack_archive(path)) if archive else str(path)
    empty = True
    ignored: Counter[str] = Counter()
    for found in walk_images(folder, ignored):
        empty = False
        name = str(path / found[len(folder) + 1 :]) if archive else str(Path(found))
        yield Input(_to_utf8(name), Path(found))
    said = describe_ignored(ignored) if ignored else ""
    if empty:
        raise UserError(f"no images in {path}" + (f": {said}" if said else ""))
    if said:
        warnings.warn(f"{path}: {said}", stacklevel=2)


def _to_utf8(name: str) -> str:
    """Return a file name as valid UTF-8, with escapes for the other bytes.

    >>> _to_utf8("gr\\udcfcn.png") == r"gr\\udcfcn.png"
    True
    """
    return name.encode("utf-8", "backslashreplace").decode()


# Their answers


def decide_at(recognizer: Recognizer, false_reject: float | None, fdr: float | None) -> Recognizer:
    """Return the model at another rate; for a share of false discoveries with one p-value for all classes."""
    if fdr is not None:
        if false_reject is not None:
            raise UserError("give false_reject or fdr, not both: each says which images are unknown")
        check_fdr(fdr)
        false_reject = recognizer.threshold.false_reject
    if false_reject is None or (fdr is not None and not recognizer.threshold.per_class):
        return recognizer
    return recognizer.at_rate(false_reject, None if fdr is None else False)


def describe_limit(recognizer: Recognizer, fdr: float | None) -> str:
    """Return one line if there are too few held-out images to reject anything; else ""."""
    threshold = recognizer.threshold
    if fdr is None:
        return threshold.describe_limit()
    needed = needed_images(fdr)
    if threshold.n >= needed:
        return ""
    return f"{threshold.n} images cannot bound false discoveries by {fdr:g} ({needed} or more would do)"


class Answer(NamedTuple):
    """The answer for one image: ``label`` is a class or "unknown", ``nearest`` the most similar known class.

    ``p_value`` says how unusual it is for a known image; None where that cannot be said. For an unreadable
    image ``error`` is the reason, and all others are None.
    """

    file: str
    label: str | None
    nearest: str | None
    score: float | None
    error: str | None
    p_value: float | None = None  # the last one, so that the columns of before are where they were


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
    columns = (found.nearest.tolist(), found.score.tolist(), found.p_value.tolist())
    named = zip(found.names(), *columns, strict=True)
    rows = []
    for file, reason in zip(batch.names, batch.reasons, strict=True):
        if reason is not None:
            rows.append(Answer(file, None, None, None, reason))
            continue
        label, nearest, score, p = next(named)
        name = recognizer.class_names[nearest]
        rows.append(Answer(file, label, name, round(score, _DIGITS), None, None if math.isnan(p) else p))
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
