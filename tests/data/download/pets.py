"""A small data set of a Hub on this machine, and what is in a folder."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from tests.data.readers.test_raw_formats import idx

PETS = "hf://datasets/me/pets"
IMAGES = "data/train-images-idx3-ubyte.gz"
FILES = {
    "data/train-images-idx3-ubyte.gz": gzip.compress(
        idx(np.random.default_rng(0).integers(0, 256, (50, 28, 28), np.uint8)), 0
    ),
    "data/train-labels-idx1-ubyte.gz": gzip.compress(idx(np.arange(50, dtype=np.uint8) % 10)),
    "README.md": b"# Pets\n",
    "pets.py": b"raise SystemExit('executed')",
    ".gitattributes": b"*.gz filter=lfs",
}


def files_in(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
