"""Write the figures of a page as SVG files, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..files import write_text
from .page import Figure

_FONT = "system-ui, DejaVu Sans, sans-serif"


def write_figures(figures: Sequence[Figure], folder: Path) -> None:
    """Write <folder>/<heading>.svg for every figure, and remove files of figures that no longer exist."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{slug(figure.heading)}.svg": figure.svg for figure in figures}
    for file, svg in files.items():
        write_text(file, standalone(svg) + "\n")
    for old in set(folder.glob("*.svg")) - files.keys():
        old.unlink()


def standalone(svg: str) -> str:
    """Return an SVG of the page as a file of its own: on white, with a font and a size."""
    [(width, height)] = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[:1]
    own = f'<svg width="{width}" height="{height}" font-family="{_FONT}" color="#1d2126" '
    start, _, rest = svg.removeprefix("<svg ").partition(">")
    start = start.replace("width: 100%", "background: white")
    if "xmlns:xlink" not in start:
        start += ' xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f"{own}{start}>{rest}".replace(
        "font-family: inherit", "font-family: system-ui, DejaVu Sans, sans-serif"
    )


def slug(heading: str) -> str:
    """Return a heading as a file name.

    >>> slug("CIFAR10: AUROC against steps")
    'cifar10-auroc-against-steps'
    """
    return re.sub(r"[^a-z0-9]+", "-", heading.lower().replace("+", "-plus-")).strip("-")
