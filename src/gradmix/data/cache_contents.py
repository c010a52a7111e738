"""What the cache holds, and how to be rid of it. Everything in these folders can be computed again."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ..locks import claimed
from .roots import cache_root

# Only these: where GRADMIX_CACHE is not set, data sets may lie in the same folder.
KINDS = {
    "decoded": "images of small folders, decoded",
    "pixels": "images of large folders, decoded",
    "unpacked": "archives, unpacked",
    "features": "features of images that a model has seen",
}


@dataclass(frozen=True)
class CacheFolder:
    """One kind of cached things; ``bounded``: the least recently used go by themselves."""

    kind: str
    about: str
    path: Path
    entries: int
    n_bytes: int
    bounded: bool


def cache_contents() -> list[CacheFolder]:
    """Of every kind, also of those that are empty."""
    found = []
    for kind, about in KINDS.items():
        path = cache_root() / kind
        entries = [p for p in path.iterdir() if not p.name.startswith(".")] if path.is_dir() else []
        n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        bounded = kind in ("decoded", "features")
        found.append(CacheFolder(kind, about, path, len(entries), n_bytes, bounded))
    return found


def clear_cache() -> int:
    """Delete it; returns how many bytes that were. Images being trained on from it stay readable.

    What another process is filling just now stays, and so do the locks by which such processes know.
    """
    before = sum(folder.n_bytes for folder in cache_contents())
    for folder in cache_contents():
        for name in _names(folder.path):
            if folder.bounded:  # files that get their name when they are whole
                (folder.path / name).unlink(missing_ok=True)
                continue
            with claimed(folder.path / f".{name}.lock") as ours:
                if ours:
                    shutil.rmtree(folder.path / name, ignore_errors=True)
                    shutil.rmtree(folder.path / f".{name}.part", ignore_errors=True)
    return before - sum(folder.n_bytes for folder in cache_contents())


def _names(path: Path) -> set[str]:
    """Of the entries in ``path``, those that are being filled (or never were to the end) included."""
    if not path.is_dir():
        return set()
    there = {entry.name for entry in path.iterdir()}
    whole = {name for name in there if not name.startswith(".")}
    return whole | {name[1:].removesuffix(".part") for name in there if name.endswith(".part")}
