"""Get a data set from the Hub into a folder, which appears when it is complete."""

from __future__ import annotations

import errno
import json
import os
import shutil
import warnings
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from ...errors import UserError
from ...files import sync_folder, wait_for_lock, write_text
from ...progress import progress
from ..catalogue import KNOWN_SETS, KnownSet, known_set
from ..file_names import is_hidden
from ..loading import find_known, is_archive, recognize
from ..roots import data_root as resolve_root
from .dataset_address import DatasetAddress, parse_dataset_address
from .fetch_file import fetch_file
from .hub_listing import HubFile, file_url, list_files

_RECORD = ".source.json"  # hidden: no reader takes it for data
_MEGABYTE = 2**20


def get_data(
    name: str,
    out: str | Path | None = None,
    *,
    only: str | None = None,
    data_root: str | Path | None = None,
) -> Path:
    """Return the folder (or the file) of a data set; download it from the Hub if it is not there.

    ``name`` is a known set's, or ``hf://datasets/owner/name@revision``. Files are put in ``out``, by default
    a folder of the set's name in the data root, if they match ``only`` ("data/*.parquet"); scripts and
    hidden files never are. An interrupted download continues. Nothing that is downloaded is executed.
    """
    address = parse_dataset_address(name)
    root = resolve_root(data_root)
    known = known_set(name) if address is None else None
    if address is None:
        if known is None:
            names = sorted(known.name for known in KNOWN_SETS.values() if known.hub_repo)
            raise UserError(
                f"no data set '{name}' to get (there are: {', '.join(names)}); "
                "or give its address: hf://datasets/owner/name"
            )
        there = _find(known, data_root) if out is None else None
        if there is not None:
            return there
        if known.hub_repo is None:
            raise UserError(
                f"no address of {known.name} on the Hub is known here: give one, hf://datasets/owner/name, "
                f"or put its files into {root} (looked for {', '.join(known.paths)})"
            )
        address, only = DatasetAddress(known.hub_repo), only or known.hub_files
        folder = root / known.name
    else:
        folder = root / address.name
    folder = Path(out).expanduser() if out is not None else folder
    try:
        _get(address, folder, only)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        more = "; make room, and the same command goes on from there" if full else ""
        raise UserError(f"could not write {folder}: {error.strerror or error}{more}") from error
    there = _find(known, data_root) if known is not None and out is None else None
    return there or folder


def _find(known: KnownSet, data_root: str | Path | None) -> Path | None:
    found = find_known(known, data_root)
    return None if found is None else found.archive or found.path


def _get(address: DatasetAddress, folder: Path, only: str | None) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_name(f".{folder.name}.lock")
    with wait_for_lock(lock, f"waiting for another download to {folder}"):
        if folder.exists():
            _check_record(address, folder)
            return
        commit, listed = list_files(address)
        files = _choose(listed, only, address)
        part = folder.with_name(f".{folder.name}.get")
        part.mkdir(exist_ok=True)
        _check_space(files, part, address)
        _fetch_all(address, commit, files, part)
        checksums = {file.path: f"{file.algorithm}:{file.checksum}" for file in files}
        record = {"repo": address.repo, "commit": commit, "files": checksums}
        write_text(part / _RECORD, json.dumps(record, indent=1))
        os.rename(part, folder)  # noqa: PTH104
        sync_folder(folder.parent)
    if recognize(folder) is None and not any(_is_set(file) for file in folder.rglob("*")):
        warnings.warn(f"{address} is in {folder}, but has no images that can be read here", stacklevel=3)


def _is_set(file: Path) -> bool:
    """Return whether a file can be a whole data set."""
    return is_archive(file) or file.suffix == ".npz"


def _choose(listed: Sequence[HubFile], only: str | None, address: DatasetAddress) -> list[HubFile]:
    """Return the files to download; neither hidden ones nor scripts."""
    visible = [
        file
        for file in listed
        if not any(is_hidden(part) for part in PurePosixPath(file.path).parts)
        and not file.path.lower().endswith(".py")
    ]
    chosen = [file for file in visible if only is None or fnmatchcase(file.path, only)]
    if not chosen:
        pattern = f" that match '{only}'" if only and visible else ""
        example = f" (it has {visible[0].path})" if pattern else ""
        raise UserError(f"{address} has no files{pattern}{example}")
    return chosen


def _fetch_all(address: DatasetAddress, commit: str, files: Sequence[HubFile], part: Path) -> None:
    """Download all files into ``part``, and delete what an earlier commit left there."""
    wanted = {part / file.path for file in files}
    done = 0
    with progress(f"downloading {address} (MB)", sum(file.size for file in files) // _MEGABYTE) as advance:

        def count(n: int) -> None:
            nonlocal done
            before, done = done, done + n
            advance(done // _MEGABYTE - before // _MEGABYTE)

        for file in files:
            target = part / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            fetch_file(file_url(address, commit, file.path), file, target, str(address), count)
    for old in sorted(part.rglob("*"), reverse=True):
        if old.is_file() and old not in wanted:
            old.unlink()
        elif old.is_dir() and not any(old.iterdir()):
            old.rmdir()  # a reader might take it for a class


def _check_record(address: DatasetAddress, folder: Path) -> None:
    """Raise unless ``folder`` is a complete download of the same data set."""
    try:
        repo = json.loads((folder / _RECORD).read_text(encoding="utf-8"))["repo"]
    except (OSError, ValueError, KeyError, TypeError):
        repo = None
    if repo != address.repo:
        was = f"a download of {repo}" if repo else "no download"
        raise UserError(f"{folder} is there already, and is {was}; remove it, or give another --out")


def _check_space(files: Sequence[HubFile], part: Path, address: DatasetAddress) -> None:
    there = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
    needed, free = sum(file.size for file in files) - there, shutil.disk_usage(part).free
    if needed > free:
        raise UserError(
            f"{address} needs {needed / 2**30:.1f} GB more, but {part.parent} has {free / 2**30:.1f} GB; "
            "give another --out"
        )
