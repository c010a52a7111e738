"""Read images from any source: the functions by which the rest of the package reads data."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ...errors import UserError
from ..decoding import BadImage, raise_if_bad
from ..file_names import describe_ignored
from ..imageset import UNKNOWN, ImageSet
from ..readers import ReadOptions, ReadResult, class_folders
from ..readers.image_files import decode_files, find_images
from ..readers.interface import refuse_damaged
from .locate import Located, locate


def load_images(
    source: str | Path,
    *,
    split: str = "train",
    data_root: Path | str | None = None,
    size: int | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    mapped: bool | None = None,
) -> ImageSet:
    """Read one split of ``source``.

    ``source`` is a path (folder of class folders, folder of Hub-layout parquet, .npz, or a raw data set as
    distributed) or the name of a known data set, looked for under ``data_root``. A source without splits is
    read whole by split "train" or "all". ``size`` makes size × size squares; None keeps what images of
    one size have, and otherwise takes the median shorter side, at most 64. ``channels`` None is 1 only if
    every image is grey. An image that cannot be read is an error, or with ``skip_bad`` a warning; so are
    files of other kinds.

    Image files that would fill more than a quarter of the memory are decoded into the cache folder once and
    stay there, memory-mapped; ``mapped`` True or False decides otherwise, and so does GRADMIX_MAP_ABOVE.
    """
    located = locate(source, data_root)
    reading = read_located(located, split, ReadOptions(size, channels, mapped=mapped))
    raise_if_bad(reading.bad, skip_bad)
    if reading.ignored:
        warnings.warn(f"{located.name}: {describe_ignored(reading.ignored)}", stacklevel=2)
    if reading.bad:
        many = len(reading.bad)
        warnings.warn(f"left out {many} unreadable image(s); the first: {reading.bad[0]}", stacklevel=2)
    return reading.images


def list_splits(source: str | Path, *, data_root: Path | str | None = None) -> tuple[str, ...]:
    """Return the splits of ``source``: of train, val, test, extra; or only "all" if it is not divided."""
    return locate(source, data_root).splits


def has_validation_folder(source: str | Path, *, data_root: Path | str | None = None) -> bool:
    """Return whether ``source`` is a folder of one's own with ``train`` and ``val``, both of class folders.

    The validation images of published sets are for testing.
    """
    located = locate(source, data_root)
    own = located.known is None and located.reader.FORMAT == class_folders.FORMAT
    return own and {"train", "val"} <= set(located.splits)


def list_class_names(
    source: str | Path, *, data_root: Path | str | None = None, skip_bad: bool = False
) -> tuple[str, ...]:
    """Return the class names of ``source``, without reading images where folder names are the classes."""
    located = locate(source, data_root)
    if located.reader.FORMAT == class_folders.FORMAT and located.known is None:
        return class_folders.class_names(located.path)
    return load_images(source, data_root=data_root, skip_bad=skip_bad).class_names


def load_image_files(
    paths: Sequence[Path], *, size: int, channels: int, skip_bad: bool = False
) -> tuple[ImageSet, list[BadImage]]:
    """Read unlabeled images from files and folders (searched through, sorted); return them and the bad ones.

    ``sources`` of the result are the paths as given, with what was found below them.
    """
    options = _check_options(ReadOptions(size, channels))
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise UserError(f"no such file or folder: {path}")
        ignored: Counter[str] = Counter()
        found = find_images(path, ignored) if path.is_dir() else [path]
        said = describe_ignored(ignored) if ignored else ""
        if not found:
            raise UserError(f"no images in {path}" + (f": {said}" if said else ""))
        if said:
            warnings.warn(f"{path}: {said}", stacklevel=2)
        files += found
    decoded = decode_files(files, [str(file) for file in files], options)
    raise_if_bad(decoded.bad, skip_bad)
    labels = torch.full((len(decoded.images),), UNKNOWN)
    sources = tuple(str(files[i]) for i in decoded.kept.tolist())
    return ImageSet(decoded.images, labels, (), sources), list(decoded.bad)


def read_located(located: Located, split: str, options: ReadOptions) -> ReadResult:
    """Read one split; bad images are listed in the result, not raised."""
    with refuse_damaged(located.path):
        reading = located.reader.read(located.path, located.split(split), _check_options(options))
    if not len(reading.images):
        why = f": {reading.bad[0]}" if reading.bad else ""
        raise UserError(f"'{split}' of {located.name} has no readable image{why}")
    images = reading.images
    if located.known and located.known.class_names:
        if located.known.numbered:
            images = _with_names(images, located.known.class_names)
        images = _in_class_order(images, located.known.class_names)
    return replace(reading, images=images.convert(options.size, options.channels))


def _check_options(options: ReadOptions) -> ReadOptions:
    if options.size is not None and options.size < 1:
        raise UserError(f"size must be at least 1 pixel, not {options.size}")
    if options.channels not in (None, 1, 3):
        raise UserError(f"channels must be 1 (grey) or 3 (colour), not {options.channels}")
    return options


def _with_names(images: ImageSet, class_names: tuple[str, ...]) -> ImageSet:
    """Return the images with ``class_names`` where the files number them, or space their names otherwise.

    Other names are left as they are.
    """
    numbers = [str(c) for c in range(len(class_names))]
    there, wanted = (["".join(name.split()) for name in names] for names in (images.class_names, class_names))
    return replace(images, class_names=class_names) if there in (numbers, wanted) else images


def _in_class_order(images: ImageSet, class_names: tuple[str, ...]) -> ImageSet:
    """Relabel by the order of ``class_names``, on which published splits rely; copies of a set may differ.

    A copy whose classes have other names is left as it is.
    """
    if images.class_names == class_names or not set(images.class_names) <= set(class_names):
        return images
    rank = torch.tensor([*(class_names.index(name) for name in images.class_names), UNKNOWN])
    return replace(images, labels=rank[images.labels], class_names=class_names)
