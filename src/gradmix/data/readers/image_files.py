"""Image files on disk: finding them, and decoding a list of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..cache.decode_cache import decode_cached
from ..cache.pixel_file import decode_to_file, should_map
from ..decoding import MAX_CHOSEN_SIZE, Decoded, decode_many
from ..file_names import is_hidden, is_image_name
from .interface import ReadOptions


def find_images(folder: Path) -> list[Path]:
    """Return all image files below ``folder``, sorted by path; skip hidden and other files."""
    found: list[Path] = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not is_hidden(name)]
        found += [Path(where, name) for name in files if is_image_name(name)]
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
