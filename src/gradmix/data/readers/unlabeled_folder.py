"""A folder of images without classes, such as Imagenet_resize: every image below it, labelled unknown.

Tried only for data sets that are known to be so: anything else would be read without its classes. A folder
with a ``train`` folder is another data set of the same name.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ..file_names import UNDIVIDED, parse_split
from ..imageset import UNKNOWN, ImageSet
from .image_files import decode_files, find_images, list_subfolders
from .interface import ReadOptions, ReadResult

FORMAT = "folder of images"


def splits(path: Path) -> tuple[str, ...]:
    if not path.is_dir() or any(parse_split(folder.name) == "train" for folder in list_subfolders(path)):
        return ()
    return (UNDIVIDED,) if find_images(path) else ()


def count(path: Path, split: str) -> int:
    return len(find_images(path))


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    return read_unlabeled(find_images(path), path, options)


def read_unlabeled(files: list[Path], root: Path, options: ReadOptions) -> ReadResult:
    """Read ``files``, labelled unknown; their sources are the paths relative to ``root``."""
    decoded = decode_files(files, [str(file) for file in files], options)
    sources = tuple(files[i].relative_to(root).as_posix() for i in decoded.kept.tolist())
    labels = torch.full((len(decoded.images),), UNKNOWN)
    return ReadResult(ImageSet(decoded.images, labels, (), sources), decoded.bad)
