"""Image files on disk: finding them, and decoding a list of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..decode_cache import cached
from ..decode_many import LARGEST_CHOSEN_SIZE, Decoded, decode_many
from ..memory import stays_on_disk
from ..pixel_file import decode_to_file
from .reading import Wanted

EXTENSIONS = frozenset(
    f".{kind}"
    for kind in (
        *("jpg", "jpeg", "jpe", "jfif", "jp2", "png", "webp", "avif", "gif"),
        *("tif", "tiff", "bmp", "dib", "tga", "ppm", "pgm", "pbm", "pnm"),
    )
)


def is_hidden(name: str) -> bool:
    """Names that no one means as data: dot files, and what archivers leave behind."""
    return name.startswith((".", "__MACOSX"))


def is_image_name(name: str) -> bool:
    return not is_hidden(name) and os.path.splitext(name)[1].lower() in EXTENSIONS  # noqa: PTH122 (a name, not a path)


def images_under(folder: Path) -> list[Path]:
    """All image files below ``folder``, sorted by path; hidden files and other kinds are passed over."""
    found: list[Path] = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not is_hidden(name)]
        found += [Path(where, name) for name in files if is_image_name(name)]
    return sorted(found)


def subfolders(folder: Path) -> list[Path]:
    """The visible folders directly in ``folder``, sorted."""
    return sorted(sub for sub in folder.iterdir() if not is_hidden(sub.name) and sub.is_dir())


def decode_files(files: Sequence[Path], names: Sequence[str], wanted: Wanted) -> Decoded:
    """Decode ``files`` as squares, from the cache if they were decoded before; see :func:`decode_many`.

    What is too large for the memory goes to a file, see :mod:`gradmix.data.pixel_file`.
    """
    most_bytes = len(files) * (wanted.channels or 3) * (wanted.size or LARGEST_CHOSEN_SIZE) ** 2
    if stays_on_disk(most_bytes) if wanted.mapped is None else wanted.mapped:
        return decode_to_file(files, names, wanted.size, wanted.channels, wanted.fresh)
    how = ["files", wanted.size, wanted.channels, list(names)]  # names are part of the list of bad ones
    return cached(
        files, how, lambda: decode_many(files, names, None, wanted.size, wanted.channels), wanted.fresh
    )
