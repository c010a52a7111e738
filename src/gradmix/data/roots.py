"""Where data sets lie and where decoded copies are kept."""

from __future__ import annotations

import os
from pathlib import Path


def data_root(given: str | Path | None = None) -> Path:
    """Return the folder of data sets: ``given``, else $GRADMIX_DATA, else ~/.cache/gradmix."""
    return _first(given, "GRADMIX_DATA")


def cache_root() -> Path:
    """Return the folder for what can be computed again: $GRADMIX_CACHE, else ~/.cache/gradmix."""
    return _first(None, "GRADMIX_CACHE")


def _first(given: str | Path | None, variable: str) -> Path:
    chosen = given or os.environ.get(variable)
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "gradmix"
