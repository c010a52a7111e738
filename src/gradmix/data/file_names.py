"""What names of files and folders mean: image, hidden, split, or a path that leaves an archive."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath

from ..errors import UserError

# A source that is not divided has this one split; it may be asked for as "train" too.
UNDIVIDED = "all"

_SPELLINGS = {
    "training": "train",
    "testing": "test",
    "valid": "val",
    "validation": "val",
}
SPLIT_NAMES = ("train", "val", "test", "extra")
EXTENSIONS = frozenset(
    f".{kind}"
    for kind in (
        *("jpg", "jpeg", "jpe", "jfif", "jp2", "png", "webp", "avif", "gif"),
        *("tif", "tiff", "bmp", "dib", "tga", "ppm", "pgm", "pbm", "pnm"),
    )
)
HEIF_EXTENSIONS = frozenset((".heic", ".heif"))  # read where pillow-heif is installed
INSTALL_HEIF = "pip install pillow-heif"
_CLUTTER = frozenset(("thumbs.db", "desktop.ini"))  # what systems put into any folder


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is not data: a dot file, or what archivers add."""
    return name.startswith((".", "__MACOSX"))


def is_image_name(name: str) -> bool:
    """Return whether ``name`` is that of a visible image file."""
    if is_hidden(name):
        return False
    ending = os.path.splitext(name)[1].lower()  # noqa: PTH122 (a name, not a path)
    return ending in EXTENSIONS or (ending in HEIF_EXTENSIONS and can_read_heif())


@functools.cache
def can_read_heif() -> bool:
    """Return whether pillow-heif is installed; it is not imported."""
    return importlib.util.find_spec("pillow_heif") is not None


def count_ignored(name: str, ignored: Counter[str]) -> None:
    """Count a file that is not read by its ending; hidden ones, and what systems leave behind, do not count.

    >>> found = Counter()
    >>> for name in ("a.HEIC", "b.HEIC", "notes", ".DS_Store", "Thumbs.db"): count_ignored(name, found)
    >>> found
    Counter({'.HEIC': 2, 'without ending': 1})
    """
    if not is_hidden(name) and name.lower() not in _CLUTTER:
        ignored[os.path.splitext(name)[1] or "without ending"] += 1  # noqa: PTH122


def describe_ignored(ignored: Mapping[str, int]) -> str:
    """Say how many files of which endings were ignored, and how HEIC files would not be.

    >>> describe_ignored({".mov": 3, ".TXT": 12})
    '.TXT: 12, .mov: 3 files ignored'
    """
    counts = ", ".join(f"{kind}: {n}" for kind, n in sorted(ignored.items(), key=lambda item: -item[1]))
    one = sum(ignored.values()) == 1
    hint = any(kind.lower() in HEIF_EXTENSIONS for kind in ignored) and not can_read_heif()
    return f"{counts} file{'' if one else 's'} ignored" + (f" (to read HEIC: {INSTALL_HEIF})" if hint else "")


def parse_split(name: str) -> str | None:
    """Return the split that a file or folder name stands for, or None.

    >>> parse_split("Validation"), parse_split("cats")
    ('val', None)
    """
    name = name.lower()
    name = _SPELLINGS.get(name, name)
    return name if name in SPLIT_NAMES else None


def leaves_folder(name: str) -> bool:
    """Return whether a path from elsewhere would leave the folder it is meant for, on any system.

    >>> [leaves_folder(name) for name in ("a/b.png", "/a", "../a", "a/../../b", "C:a", "..\\\\a", "")]
    [False, True, True, True, True, True, True]
    """
    windows = PureWindowsPath(name)
    absolute = name.startswith("/") or bool(windows.drive or windows.root)
    return absolute or "\0" in name or ".." in windows.parts or not windows.parts


def refuse_path(archive: Path, name: str) -> None:
    """Raise if a member's name is a path that leaves the folder it is unpacked to, on any system."""
    if leaves_folder(name) and PureWindowsPath(name).parts:
        raise UserError(f"{archive}: {name!r} would be unpacked outside its folder; the archive is refused")
