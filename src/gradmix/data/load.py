"""Images from wherever they are: the two functions that the rest of the package reads data with."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..errors import UserError
from .decode_many import BadImage, refuse_or_skip
from .imageset import UNKNOWN, ImageSet
from .locate import Located, locate
from .readers import Reading, Wanted, class_folders
from .readers.image_files import decode_files, images_under


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
    every image is grey. An image that cannot be read is an error, or with ``skip_bad`` a warning.

    Image files that would fill more than a quarter of the memory are decoded into the cache folder once and
    stay there, memory-mapped; ``mapped`` True or False decides otherwise, and so does GRADMIX_MAP_ABOVE.
    """
    reading = read_located(locate(source, data_root), split, Wanted(size, channels, mapped=mapped))
    refuse_or_skip(reading.bad, skip_bad)
    if reading.bad:
        many = len(reading.bad)
        warnings.warn(f"left out {many} unreadable image(s); the first: {reading.bad[0]}", stacklevel=2)
    return reading.images


def splits_of(source: str | Path, *, data_root: Path | str | None = None) -> tuple[str, ...]:
    """The splits that ``source`` has: of train, val, test, extra; or only "all" if it is not divided."""
    return locate(source, data_root).splits


def class_names_of(
    source: str | Path, *, data_root: Path | str | None = None, skip_bad: bool = False
) -> tuple[str, ...]:
    """The class names of what :func:`load_images` reads, from the folders' names alone where they say it."""
    located = locate(source, data_root)
    if located.reader.FORMAT == class_folders.FORMAT and located.known is None:
        return class_folders.class_names(located.path)
    return load_images(source, data_root=data_root, skip_bad=skip_bad).class_names


def load_image_files(
    paths: Sequence[Path], *, size: int, channels: int, skip_bad: bool = False
) -> tuple[ImageSet, list[BadImage]]:
    """Unlabelled images from files and folders (searched through, sorted), and those that are broken.

    ``sources`` of the result are the paths as given, with what was found below them.
    """
    wanted = _checked(Wanted(size, channels))
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise UserError(f"no such file or folder: {path}")
        found = images_under(path) if path.is_dir() else [path]
        if not found:
            raise UserError(f"no images in {path}")
        files += found
    decoded = decode_files(files, [str(file) for file in files], wanted)
    refuse_or_skip(decoded.bad, skip_bad)
    labels = torch.full((len(decoded.images),), UNKNOWN)
    sources = tuple(str(files[i]) for i in decoded.kept.tolist())
    return ImageSet(decoded.images, labels, (), sources), list(decoded.bad)


def read_located(located: Located, split: str, wanted: Wanted) -> Reading:
    """Read one split; the images have the wanted size and channels, bad ones are listed, not raised."""
    reading = located.reader.read(located.path, located.split(split), _checked(wanted))
    if not len(reading.images):
        why = f": {reading.bad[0]}" if reading.bad else ""
        raise UserError(f"'{split}' of {located.name} has no readable image{why}")
    images = reading.images
    if located.known and located.known.class_names:
        images = _in_class_order(images, located.known.class_names)
    return replace(reading, images=images.converted(wanted.size, wanted.channels))


def _checked(wanted: Wanted) -> Wanted:
    if wanted.size is not None and wanted.size < 1:
        raise UserError(f"size must be at least 1 pixel, not {wanted.size}")
    if wanted.channels not in (None, 1, 3):
        raise UserError(f"channels must be 1 (grey) or 3 (colour), not {wanted.channels}")
    return wanted


def _in_class_order(images: ImageSet, class_names: tuple[str, ...]) -> ImageSet:
    """Labels as ranks in ``class_names``: published splits count on that order, copies of a set may not.

    A copy whose classes have other names altogether is left as it is: its order is all there is to go by.
    """
    if images.class_names == class_names or not set(images.class_names) <= set(class_names):
        return images
    rank = torch.tensor([*(class_names.index(name) for name in images.class_names), UNKNOWN])
    return replace(images, labels=rank[images.labels], class_names=class_names)
