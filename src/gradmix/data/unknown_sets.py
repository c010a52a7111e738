"""Read the sets of unknown images of a benchmark, each under its name; say which are not on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError, choose
from .benchmarks import BENCHMARKS, UnknownSource
from .catalogue import KNOWN_SETS
from .concatenate import concatenate_unknown
from .decoding import raise_if_bad
from .imageset import ImageFormat, ImageSet
from .loading import Located, find_known, locate, read_located
from .readers import ReadOptions, ReadResult, class_folders
from .readers.image_files import find_images, resolve_inside
from .readers.unlabeled_folder import read_unlabeled
from .roots import data_root as resolve_root

# Where OpenOOD's download script puts its lists and images, seen from the data root.
_OPENOOD_ROOTS = ("", "openood", "OpenOOD/data")
_OPENOOD_LISTS, _OPENOOD_IMAGES = "benchmark_imglist", "images_classic"


@dataclass(frozen=True, eq=False)
class UnknownSet:
    """The unknown images of one name: ``group`` is "near", "far", "easy", …; ``note`` says how they differ
    from the benchmark's own.
    """

    name: str
    group: str
    images: ImageSet
    note: str = ""


@dataclass(frozen=True)
class MissingSet:
    """A set of unknown images that is not on disk, and where it was looked for."""

    name: str
    group: str
    reason: str


def has_unknown_sets(protocol: str) -> bool:
    """Return whether the unknown images of ``protocol`` come as several named sets."""
    return protocol in BENCHMARKS


def load_unknown_sets(
    protocol: str,
    data_root: str | Path | None,
    wanted: ImageFormat,
    skip_missing: bool = False,
    skip_bad: bool = False,
) -> tuple[tuple[UnknownSet, ...], tuple[MissingSet, ...]]:
    """Return the sets of unknown images of a benchmark, and those that are not on disk.

    A set that is missing is an error, unless ``skip_missing``; that none is there is always one.
    """
    benchmark = BENCHMARKS[choose("protocol with several unknown sets", protocol, BENCHMARKS)]
    places = {unknown: _find(unknown, data_root, not skip_missing) for unknown in benchmark.unknown}
    missing = tuple(
        MissingSet(unknown.name, unknown.group, _where(unknown, data_root))
        for unknown, place in places.items()
        if place is None
    )
    if missing and (not skip_missing or len(missing) == len(places)):
        raise UserError(_complain(protocol, missing, len(places)))
    options = ReadOptions(wanted.size, wanted.channels)
    read: dict[_Place, ImageSet] = {}  # three sets of classes may be of one source
    loaded = []
    for unknown, place in places.items():
        if place is None:
            continue
        if place not in read:
            reading = _read(place, unknown, options)
            raise_if_bad(reading.bad, skip_bad)
            read[place] = reading.images
        images = read[place] if unknown.classes is None else read[place].only(unknown.classes)
        if not len(images):
            raise UserError(
                f"{unknown.source} has no test images of the '{unknown.name}' classes of {protocol}"
            )
        note = "OpenOOD's own list of images" if isinstance(place, _Listed) else unknown.note
        loaded.append(UnknownSet(unknown.name, unknown.group, concatenate_unknown([images]), note))
    return tuple(loaded), missing


def pool_groups(sets: Sequence[UnknownSet]) -> tuple[UnknownSet, ...]:
    """Return one set per group, named after it, with the images of all its sets.

    The Semantic Shift Benchmark reports its medium and hard classes so.
    """
    groups = dict.fromkeys(unknown.group for unknown in sets)
    members = {group: [unknown for unknown in sets if unknown.group == group] for group in groups}
    return tuple(
        UnknownSet(
            group,
            group,
            concatenate_unknown([unknown.images for unknown in of_group]),
            "; ".join(dict.fromkeys(unknown.note for unknown in of_group if unknown.note)),
        )
        for group, of_group in members.items()
    )


@dataclass(frozen=True)
class _Listed:
    """OpenOOD's list of a set, and the folder of its images."""

    file: Path
    folder: Path


_Place = Located | _Listed


def _find(unknown: UnknownSource, data_root: str | Path | None, download: bool) -> _Place | None:
    """Return where a set is, or None: OpenOOD's own list of it first, then the data set's usual places."""
    for base in (resolve_root(data_root) / name for name in _OPENOOD_ROOTS) if unknown.listed else ():
        listed = _Listed(base / _OPENOOD_LISTS / unknown.listed, base / _OPENOOD_IMAGES)
        if listed.file.is_file() and listed.folder.is_dir():
            return listed
    known = KNOWN_SETS[unknown.source]
    found = find_known(known, data_root)
    if found is not None or not download or known.hub_repo is None:
        return found
    try:
        return locate(known.name, data_root)  # which downloads it
    except UserError:
        return None  # reported as missing, together with the others


def _where(unknown: UnknownSource, data_root: str | Path | None) -> str:
    known = KNOWN_SETS[unknown.source]
    get = f"; gradmix data get {known.name} downloads it" if known.hub_repo else ""
    return f"looked for {', '.join(known.paths)} in {resolve_root(data_root)}{get}"


def _complain(protocol: str, missing: Sequence[MissingSet], of: int) -> str:
    names = ", ".join(unknown.name for unknown in missing)
    put = "put it there" if len(missing) == 1 else "put them there"
    skip = ", or leave out what is missing with --skip-missing" if len(missing) < of else ""
    return f"{protocol} needs {names}: not found ({missing[0].name}: {missing[0].reason}); {put}{skip}"


def _read(place: _Place, unknown: UnknownSource, options: ReadOptions) -> ReadResult:
    """Read the test images of a set, or all of it; class folders as mere files if all classes are wanted."""
    if isinstance(place, _Listed):
        return _read_list(place, options)
    test_split = place.test_split
    if place.reader.FORMAT == class_folders.FORMAT and unknown.classes is None:
        whole = unknown.whole or test_split is None
        folder = place.path if whole else class_folders.split_folder(place.path, str(test_split))
        return read_unlabeled(find_images(folder), place.path, options)
    splits = place.splits if unknown.whole or test_split is None else (test_split,)
    parts = [read_located(place, split, options) for split in splits]
    if len(parts) == 1:
        return parts[0]
    bad = tuple(bad for part in parts for bad in part.bad)
    return ReadResult(concatenate_unknown([part.images for part in parts]), bad)


def _read_list(listed: _Listed, options: ReadOptions) -> ReadResult:
    """Read the images of a list, which has one "path label" per line."""
    lines = listed.file.read_text(encoding="utf-8").splitlines()
    names = [line.strip().rpartition(" ")[0] for line in lines if line.strip()]
    if not names:
        raise UserError(f"{listed.file} lists no images")
    files = [resolve_inside(listed.folder, name, listed.file) for name in names]
    return read_unlabeled(files, listed.folder, options)
