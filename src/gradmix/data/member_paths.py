"""Names in archives are paths that somebody else has written."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from ..errors import UserError


def refuse_path(archive: Path, name: str) -> None:
    """Raise if a member's name is a path that leaves the folder it is unpacked to, on any system."""
    windows = PureWindowsPath(name)
    leaves = name.startswith("/") or windows.drive or windows.root or ".." in windows.parts
    if leaves or "\0" in name or ".." in PurePosixPath(name).parts:
        raise UserError(f"{archive}: {name!r} would be unpacked outside its folder; the archive is refused")
