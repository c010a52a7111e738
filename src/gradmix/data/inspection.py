"""List the known data sets, describe a source, and check it for broken or doubtful images."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UserError
from .catalogue import KNOWN_SETS
from .decoding import read_shapes
from .file_names import UNDIVIDED, describe_ignored
from .imageset import UNKNOWN, ImageSet
from .loading import Located, find_known, is_archive, locate, read_located
from .mapped_images import iterate_parts
from .readers import ReadOptions
from .readers.interface import refuse_damaged
from .roots import data_root as resolve_root

FEW_IMAGES = 10  # fewer in a training class are reported
_LONG = 3.0  # sides in a greater ratio: the central square then misses most of the picture


@dataclass(frozen=True)
class Listing:
    """A known data set: where it is (None: not there), in which format, images per split, or the trouble."""

    name: str
    path: Path | None = None
    format: str = ""
    splits: tuple[tuple[str, int], ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class SplitInfo:
    """One split of a source, as :func:`gradmix.data.load_images` reads it."""

    name: str
    path: Path
    format: str
    split: str
    shape: tuple[int, int, int]  # channels, height, width
    counts: dict[str, int]
    hash: str
    unreadable: int = 0

    @property
    def images(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Finding:
    """Something about the data; ``broken`` if it must be put right before the data can be used."""

    kind: str
    where: str
    what: str
    broken: bool = False


@dataclass(frozen=True)
class CheckReport:
    """The images that were checked, and the findings."""

    name: str
    path: Path
    images: dict[str, int]  # readable ones, per split
    findings: tuple[Finding, ...]
    counts: dict[str, dict[str, int]] = field(default_factory=dict)  # … and per class

    @property
    def broken(self) -> bool:
        return any(finding.broken for finding in self.findings)


def list_data(data_root: str | Path | None = None) -> list[Listing]:
    """Return every known data set, whether it is under the root or not; nothing is decoded or downloaded."""
    return [_listing(name, data_root) for name in KNOWN_SETS]


def describe_data(source: str | Path, *, data_root: str | Path | None = None) -> list[SplitInfo]:
    """Return shape, images per class and content hash of each split of ``source``; only count bad images."""
    located = locate(source, data_root)
    return [_split_info(located, split) for split in located.splits]


def check_data(source: str | Path, *, data_root: str | Path | None = None) -> CheckReport:
    """Decode every image of every split, past any cache, and report what is broken or doubtful."""
    located = locate(source, data_root)
    readable: dict[str, ImageSet] = {}
    findings: list[Finding] = []
    for split in located.splits:
        try:
            reading = read_located(located, split, ReadOptions(fresh=True))
        except UserError as error:
            findings.append(Finding("unusable", split, str(error), broken=True))
            continue
        findings += [Finding("unreadable", bad.name, bad.reason, broken=True) for bad in reading.bad]
        if reading.ignored:
            findings.append(Finding("ignored", split, describe_ignored(reading.ignored)))
        readable[split] = reading.images
        if split in ("train", UNDIVIDED):
            findings += _small_classes(reading.images)
        findings += _odd_sizes(located.path, reading.images)
    findings += _repeated(readable)
    return CheckReport(
        located.name,
        located.path,
        {split: len(found) for split, found in readable.items()},
        tuple(findings),
        {split: found.class_counts() for split, found in readable.items()},
    )


def _listing(name: str, data_root: str | Path | None) -> Listing:
    try:
        located = find_known(KNOWN_SETS[name], data_root, unpack=False)
        if located is None:
            return _packed(name, data_root) or Listing(name)
        with refuse_damaged(located.path):
            counts = tuple((split, located.reader.count(located.path, split)) for split in located.splits)
    except UserError as error:
        return Listing(name, trouble=str(error))
    return Listing(name, located.path, located.reader.FORMAT, counts)


def _packed(name: str, data_root: str | Path | None) -> Listing | None:
    """Return a listing without counts for an archive, which is unpacked on first use."""
    paths = (resolve_root(data_root) / path for path in KNOWN_SETS[name].paths)
    archive = next((path for path in paths if is_archive(path) and path.is_file()), None)
    return Listing(name, archive, "archive, unpacked on first use") if archive else None


def _split_info(located: Located, split: str) -> SplitInfo:
    reading = read_located(located, split, ReadOptions())
    images = reading.images
    channels, height, width = images.images.shape[1:]
    return SplitInfo(
        name=located.name,
        path=located.path,
        format=located.reader.FORMAT,
        split=split,
        shape=(channels, height, width),
        counts=images.counts(),
        hash=images.content_hash(),
        unreadable=len(reading.bad),
    )


def _small_classes(images: ImageSet) -> Iterator[Finding]:
    for name, number in images.counts().items():
        if 0 < number < FEW_IMAGES:
            yield Finding("few images", name, f"{number} images; {FEW_IMAGES} or more are advisable")


def _odd_sizes(path: Path, images: ImageSet) -> Iterator[Finding]:
    """Report files much smaller than the size they are read in, or very long."""
    files = [path / source for source in images.sources]
    if not files or not files[0].is_file():
        return
    size = images.images.shape[-1]
    for source, shape in zip(images.sources, read_shapes(files)[0], strict=True):
        if shape is None:
            continue
        height, width = shape
        if 2 * min(shape) < size:
            yield Finding("odd size", source, f"{height} x {width} pixels, enlarged to {size} x {size}")
        elif max(shape) > _LONG * min(shape):
            yield Finding("odd size", source, f"{height} x {width} pixels; only the central square is used")


def _repeated(splits: dict[str, ImageSet]) -> Iterator[Finding]:
    """Report groups of images with the same pixels: in two classes, in two splits, or elsewhere."""
    groups: dict[bytes, list[tuple[str, str, str]]] = defaultdict(list)
    for split, images in splits.items():
        names = {UNKNOWN: "unknown", **dict(enumerate(images.class_names))}
        every = (image for part in iterate_parts(images.images) for image in part.numpy())
        for pixels, label, source in zip(every, images.labels.tolist(), images.sources, strict=True):
            groups[hashlib.sha256(pixels.data).digest()].append((split, names[label], source))
    for group in groups.values():
        if len(group) < 2:
            continue
        where, others = group[0][2], ", ".join(source for _, _, source in group[1:4])
        more = f" and {len(group) - 4} more" if len(group) > 4 else ""
        classes, in_splits = {name for _, name, _ in group}, {split for split, _, _ in group}
        if len(classes) > 1:
            yield Finding(
                "in two classes", where, f"same pixels as {others}{more}: {', '.join(sorted(classes))}"
            )
        elif len(in_splits) > 1:
            yield Finding(
                "in two splits", where, f"same pixels as {others}{more}: {', '.join(sorted(in_splits))}"
            )
        else:
            yield Finding("duplicate", where, f"same pixels as {others}{more}")
