"""The folders that ``discover`` writes and ``enroll --group`` reads."""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import UserError

GROUP_FILE = "group.json"


def check_free(folder: Path) -> None:
    """Groups go into a new folder: what a person has named and sorted there is not written over."""
    if folder.exists():
        raise UserError(f"{folder} exists already; choose another --out, or delete it")
    if not folder.parent.is_dir():
        raise UserError(f"no folder {folder.parent} to put {folder.name} into; make it first")


def files_of_group(folder: Path) -> list[Path]:
    """The image files of a group."""
    file = folder / GROUP_FILE
    if not file.is_file():
        raise UserError(f"{folder} is not a group of 'gradmix discover' (no {GROUP_FILE} in it)")
    try:
        files = [Path(str(name)) for name in json.loads(file.read_text(encoding="utf-8"))["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged: it lists no files") from error
    if not files:
        raise UserError(f"{file} lists no files")
    return files
