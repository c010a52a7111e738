"""A folder of class folders: ``photos/cat/1.jpg``, or ``photos/train/cat/1.jpg`` with splits.

Images may be of any size, format and mode, and may lie in sub-folders of their class. Each becomes the
central square of the wanted size (by default the median shorter side, at most 64). They are grey only if all
are. Where there is a ``train`` folder, its classes are the classes: an image of another class, in ``test``
say, is labelled unknown.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import torch

from ...errors import UserError
from ..file_names import UNDIVIDED, count_ignored, describe_ignored, is_image_name, parse_split
from ..imageset import UNKNOWN, ImageSet
from .image_files import decode_files, find_images, list_subfolders
from .interface import ReadOptions, ReadResult

FORMAT = "folder of class folders"


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits; "all" for plain class folders, or for images outside of class folders."""
    if not path.is_dir():
        return ()
    found = tuple(_split_folders(path))
    return found or ((UNDIVIDED,) if list_subfolders(path) or _loose_image(path) else ())


def count(path: Path, split: str) -> int:
    return len(find_images(split_folder(path, split)))


def class_names(path: Path) -> tuple[str, ...]:
    """Return the classes that :func:`read` finds, without opening an image."""
    return _class_names(_split_folders(path).get("train", path))


def split_folder(path: Path, split: str) -> Path:
    """Return the folder of a split; that of a source without splits is the source."""
    return _split_folders(path).get(split, path)


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    """Read one split, labelled by folder name in sorted order."""
    divided = _split_folders(path)
    folder = divided[split] if divided else path
    names = _class_names(divided.get("train", folder))
    if split in ("train", UNDIVIDED) and len(names) == 1 and _holds_folders_only(folder / names[0]):
        raise UserError(
            f"{folder} has only one class folder ({names[0]}), which holds folders; for a class each: "
            f"{folder / names[0]}"
        )
    number = {name: i for i, name in enumerate(names)}
    files: list[Path] = []
    labels: list[int] = []
    ignored: Counter[str] = Counter()
    for file in sorted(folder.iterdir()):  # images beside the class folders are of no class
        if file.is_file():
            count_ignored(file.name, ignored)
    for class_folder in map(folder.joinpath, _class_names(folder)):
        others: Counter[str] = Counter()
        in_class = find_images(class_folder, others)
        ignored += others
        if not in_class:
            why = f" ({describe_ignored(others)})" if others else ""
            raise UserError(f"class folder {class_folder} has no images{why}; add some, or remove the folder")
        files += in_class
        labels += [number.get(class_folder.name, UNKNOWN)] * len(in_class)
    decoded = decode_files(files, [str(file) for file in files], options)
    readable = {files[i].relative_to(folder).parts[0] for i in decoded.kept.tolist()}
    lost = next((name for name in _class_names(folder) if name not in readable), None)
    if lost is not None:
        raise UserError(f"class folder {folder / lost} has no readable image: {decoded.bad[0]}")
    images = ImageSet(
        decoded.images,
        torch.tensor(labels, dtype=torch.int64)[decoded.kept],
        names,
        tuple(files[i].relative_to(path).as_posix() for i in decoded.kept.tolist()),
    )
    return ReadResult(images, decoded.bad, ignored)


def _split_folders(path: Path) -> dict[str, Path]:
    """Return the subfolders that are splits: named so, and holding folders. A class "train" holds images."""
    named = {parse_split(sub.name): sub for sub in list_subfolders(path)}
    return {
        split: sub
        for split, sub in named.items()
        if split is not None and list_subfolders(sub) and not _loose_image(sub)
    }


def _class_names(folder: Path) -> tuple[str, ...]:
    names = tuple(sub.name for sub in list_subfolders(folder))
    if not names:
        raise UserError(f"{folder} has images but no class folders; make one folder a class, named after it")
    return names


def _holds_folders_only(folder: Path) -> bool:
    """Return whether a folder is rather one of class folders than a class."""
    return len(list_subfolders(folder)) > 1 and not _loose_image(folder)


def _loose_image(folder: Path) -> bool:
    return any(is_image_name(file.name) for file in folder.iterdir())
