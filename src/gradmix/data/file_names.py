"""What names of files and folders mean: image, hidden, split, or a path that leaves an archive."""

from __future__ import annotations

import os
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


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is not data: a dot file, or what archivers add."""
    return name.startswith((".", "__MACOSX"))


def is_image_name(name: str) -> bool:
    """Return whether ``name`` is that of a visible image file."""
    return not is_hidden(name) and os.path.splitext(name)[1].lower() in EXTENSIONS  # noqa: PTH122 (a name, not a path)


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
