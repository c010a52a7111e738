"""Image files on disk: finding them, decoding a list of them, and reading a list with labels."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from ...errors import UserError
from ..cache.decode_cache import decode_cached
from ..cache.pixel_file import decode_to_file, should_map
from ..decoding import MAX_CHOSEN_SIZE, Decoded, decode_many
from ..file_names import count_ignored, is_hidden, is_image_name, leaves_folder
from ..imageset import UNKNOWN, ImageSet
from .interface import ReadOptions, ReadResult


def find_images(folder: Path, ignored: Counter[str] | None = None) -> list[Path]:
    """Return all image files below ``folder``, sorted by path; skip hidden and other files.

    The other ones are counted in ``ignored``, by their endings.
    """
    found: list[Path] = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not is_hidden(name)]
        for name in files:
            if is_image_name(name):
                found.append(Path(where, name))
            elif ignored is not None:
                count_ignored(name, ignored)
    return sorted(found)


def list_subfolders(folder: Path) -> list[Path]:
    """Return the visible folders directly in ``folder``, sorted."""
    return sorted(sub for sub in folder.iterdir() if not is_hidden(sub.name) and sub.is_dir())


def decode_files(files: Sequence[Path], names: Sequence[str], options: ReadOptions) -> Decoded:
    """Decode ``files`` as squares, from the cache if they were decoded before; see :func:`decode_many`.

    Images too large for the memory go to a file, see :mod:`gradmix.data.cache.pixel_file`.
    """
    most_bytes = len(files) * (options.channels or 3) * (options.size or MAX_CHOSEN_SIZE) ** 2
    if should_map(most_bytes) if options.mapped is None else options.mapped:
        return decode_to_file(files, names, options.size, options.channels, options.fresh)
    how = ["files", options.size, options.channels, list(names)]  # names are part of the list of bad ones
    return decode_cached(
        files, how, lambda: decode_many(files, names, None, options.size, options.channels), options.fresh
    )


def read_labeled_files(
    files: Sequence[Path],
    classes: Sequence[str | None],
    names: tuple[str, ...],
    root: Path,
    listed: Path,
    options: ReadOptions,
) -> ReadResult:
    """Read ``files`` (N) of ``classes`` (N), which are of ``names``, or None for unknown.

    Sources are paths relative to ``root``; ``listed`` is the file that names the classes, for errors.
    """
    number: dict[str | None, int] = {name: i for i, name in enumerate(names)} | {None: UNKNOWN}
    foreign = next((name for name in classes if name not in number), None)
    if foreign is not None:
        raise UserError(f"{listed}: class '{foreign}' is not among the {len(names)} classes of {root}")
    decoded = decode_files(files, [str(file) for file in files], options)
    labels = torch.tensor([number[name] for name in classes], dtype=torch.int64)[decoded.kept]
    sources = tuple(files[i].relative_to(root).as_posix() for i in decoded.kept.tolist())
    return ReadResult(ImageSet(decoded.images, labels, names, sources), decoded.bad)


def resolve_inside(folder: Path, name: str, listed: Path, line: int | None = None) -> Path:
    """Return ``folder / name``; raise if that leaves the folder. ``listed`` (and its ``line``) names it.

    A list may come from elsewhere, and must not choose among all files of this machine.
    """
    name = name.replace("\\", "/")
    if leaves_folder(name):
        where = f"{listed}, line {line}" if line else str(listed)
        raise UserError(f"{where}: {name!r} is not a path inside {folder}")
    return folder / name
