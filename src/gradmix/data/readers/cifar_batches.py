"""CIFAR-10 and CIFAR-100 "python version" as distributed: the batches, or the .tar.gz they come in."""

from __future__ import annotations

import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from ...errors import UserError
from ..file_names import refuse_path
from ..imageset import ImageSet
from .interface import ReadOptions, ReadResult
from .plain_pickle import NotPlain, load_plain

FORMAT = "CIFAR python batches"
_LARGEST_FILE = 2**29  # the largest batch, of CIFAR-100, has 160 MB; a bomb would fill the memory


@dataclass(frozen=True)
class _Layout:
    folder: str
    archive: str
    members: dict[str, tuple[str, ...]]
    meta: str
    names: str
    labels: str


_LAYOUTS = (
    _Layout(
        folder="cifar-10-batches-py",
        archive="cifar-10-python.tar.gz",
        members={"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
        meta="batches.meta",
        names="label_names",
        labels="labels",
    ),
    _Layout(
        folder="cifar-100-python",
        archive="cifar-100-python.tar.gz",
        members={"train": ("train",), "test": ("test",)},
        meta="meta",
        names="fine_label_names",
        labels="fine_labels",
    ),
)


def splits(path: Path) -> tuple[str, ...]:
    found = _find(path)
    if found is None:
        return ()
    place, layout = found
    if place.is_file():
        return tuple(layout.members)  # the archive is all or nothing; reading says if it is not
    return tuple(split for split, files in layout.members.items() if (place / files[0]).is_file())


def count(path: Path, split: str) -> int:
    return len(
        read(path, split, ReadOptions()).images
    )  # a batch does not say how long it is before it is read


def read(path: Path, split: str, options: ReadOptions) -> ReadResult:
    found = _find(path)
    assert found is not None  # splits() has seen it
    place, layout = found
    files = layout.members[split]
    contents = _contents(place, {*files, layout.meta})
    meta = _unpickled(place, layout.meta, contents)
    class_names = tuple(_text(name) for name in _entry(place, layout.meta, meta, layout.names))
    pixels, labels, sources = [], [], []
    for file in files:
        batch = _unpickled(place, file, contents)
        data, batch_labels = (_entry(place, file, batch, key) for key in ("data", layout.labels))
        if not isinstance(data, np.ndarray) or data.shape != (len(batch_labels), 3072):
            raise UserError(
                f"{place}: {file} is not a CIFAR batch of {len(batch_labels)} images of 3 x 32 x 32"
            )
        pixels.append(data.reshape(-1, 3, 32, 32))
        labels += [int(label) for label in batch_labels]
        sources += [f"{file}#{i}" for i in range(len(batch_labels))]
    images = torch.from_numpy(np.concatenate(pixels))
    return ReadResult(ImageSet(images, torch.tensor(labels, dtype=torch.int64), class_names, tuple(sources)))


def _find(path: Path) -> tuple[Path, _Layout] | None:
    for layout in _LAYOUTS:
        if path.is_file() and path.name == layout.archive:
            return path, layout
        for folder in (path, path / layout.folder):
            if (folder / layout.meta).is_file():
                return folder, layout
        if (path / layout.archive).is_file():
            return path / layout.archive, layout
    return None


def _contents(place: Path, wanted: set[str]) -> dict[str, bytes]:
    """Return the files called ``wanted``, from the folder, or from the archive without unpacking it."""
    try:
        if place.is_dir():
            return {name: (place / name).read_bytes() for name in wanted if (place / name).is_file()}
        contents = {}
        with tarfile.open(place, "r:gz") as archive:
            for member in archive:
                refuse_path(place, member.name)  # nothing is written, but such an archive is no CIFAR
                name = PurePosixPath(member.name).name
                if member.size > _LARGEST_FILE:
                    raise UserError(f"{place}: {member.name} has {member.size:,} bytes, too many for a batch")
                file = archive.extractfile(member) if member.isfile() and name in wanted else None
                if file is not None:
                    contents[name] = file.read()
        return contents
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise UserError(f"{place} is damaged ({error}); get it again") from error


def _unpickled(place: Path, name: str, contents: dict[str, bytes]) -> dict[str, Any]:
    if name not in contents:
        raise UserError(f"{place} has no {name}; get the data set again")
    try:
        return load_plain(contents[name])
    except NotPlain as reason:
        raise UserError(f"{place}: {name} is not a plain CIFAR batch and was refused ({reason})") from reason


def _entry(place: Path, file: str, content: dict[str, Any], key: str) -> Any:
    if key not in content:
        raise UserError(f"{place}: {file} has no '{key}'; it is not of this data set")
    return content[key]


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
