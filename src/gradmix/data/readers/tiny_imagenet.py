"""tiny-imagenet-200 as distributed: ``train/<wnid>/images``, and ``val/images`` with val_annotations.txt.

Labels are ranks of the sorted wnids, which is not the order of wnids.txt. The official test images have no
labels and are not read. A ``val`` that has been sorted into class folders, as many people do, is read too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from ...errors import UserError
from ..imageset import ImageSet
from .image_files import decode_files, find_images, list_subfolders
from .interface import ReadOptions, ReadResult

FORMAT = "tiny-imagenet-200"
_SIZE = 64


def splits(path: Path) -> tuple[str, ...]:
    if not (path / "wnids.txt").is_file() and not (path / "val" / "val_annotations.txt").is_file():
        return ()
    return tuple(split for split in ("train", "val") if (path / split).is_dir())


def count(path: Path, split: str) -> int:
    return len(_train_files(path, _wnids(path)) if split == "train" else _val_files(path))


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    names = _wnids(path)
    files = _train_files(path, names) if split == "train" else _val_files(path)
    number = {name: i for i, name in enumerate(names)}
    foreign = next((wnid for _, wnid in files if wnid not in number), None)
    if foreign is not None:
        raise UserError(f"{path}: class {foreign} of '{split}' is not among the {len(names)} wnids")
    if not files:
        raise UserError(f"{path / split} has no images")
    paths = [file for file, _ in files]
    decoded = decode_files(paths, [str(file) for file in paths], replace(options, size=options.size or _SIZE))
    labels = torch.tensor([number[wnid] for _, wnid in files], dtype=torch.int64)
    sources = tuple(paths[i].relative_to(path).as_posix() for i in decoded.kept.tolist())
    return ReadResult(ImageSet(decoded.images, labels[decoded.kept], names, sources), decoded.bad)


def _wnids(path: Path) -> tuple[str, ...]:
    listed = path / "wnids.txt"
    if listed.is_file():
        return tuple(sorted(set(listed.read_text(encoding="utf-8").split())))
    return tuple(folder.name for folder in list_subfolders(path / "train"))


def _train_files(path: Path, names: tuple[str, ...]) -> list[tuple[Path, str]]:
    return [
        (file, name)
        for name in names
        if (path / "train" / name).is_dir()  # a part of the classes is enough for one trial
        for file in find_images(path / "train" / name)
    ]


def _val_files(path: Path) -> list[tuple[Path, str]]:
    images, annotations = path / "val" / "images", path / "val" / "val_annotations.txt"
    if not images.is_dir():
        return [
            (file, folder.name) for folder in list_subfolders(path / "val") for file in find_images(folder)
        ]
    if not annotations.is_file():
        raise UserError(f"{annotations} is missing: without it the images in {images} have no labels")
    rows = [line.split("\t") for line in annotations.read_text(encoding="utf-8").splitlines() if line.strip()]
    broken = next((i for i, row in enumerate(rows, 1) if len(row) < 2), None)
    if broken is not None:
        raise UserError(f"{annotations}, line {broken}: not 'file<TAB>wnid<TAB>box'")
    outside = next((row[0] for row in rows if not row[0] or Path(row[0]).name != row[0]), None)
    if outside is not None:
        raise UserError(f"{annotations}: {outside!r} is not the name of a file in {images}")
    return [(images / row[0], row[1]) for row in rows]
