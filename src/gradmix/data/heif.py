"""HEIC and HEIF pictures, as phones take them, where pillow-heif is installed (the extra ``heif``).

Pillow's list of formats is left as it is: the package is imported when the first such picture is opened.
"""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path
from typing import Any

from PIL import Image

_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
_EXTENT = re.compile(rb"ispe\0{4}(.{8})", re.DOTALL)  # width and height of a part of the file
_HEAD = 12  # bytes that tell


def is_heif(content: bytes) -> bool:
    """Return whether this is how a HEIC or HEIF file begins (ISO/IEC 23008-12; AVIF is Pillow's own).

    >>> is_heif(bytes(4) + b"ftypheic"), is_heif(bytes(4) + b"ftypavif")
    (True, False)
    """
    return content[4:8] == b"ftyp" and content[8:_HEAD] in _BRANDS


def begins_as_heif(source: Path | bytes) -> bool:
    """Return whether a file, whatever its name, or the bytes of one are a HEIC or HEIF picture."""
    if isinstance(source, bytes):
        return is_heif(source)
    with open(source, "rb") as file:
        return is_heif(file.read(_HEAD))


def open_heif(source: Path | bytes) -> tuple[Image.Image, int]:
    """Open, but do not decode; return the picture, and the most pixels that any part of the file declares.

    A small picture may be cut out of a large one, which is decoded whole, so its own size does not tell.
    libheif turns the picture upright by itself, and refuses a file of another size than it declares.
    """
    import pillow_heif

    plugin: Any = pillow_heif  # it has no types
    content = source if isinstance(source, bytes) else source.read_bytes()
    opened: Image.Image = plugin.HeifImageFile(io.BytesIO(content))
    sizes = (struct.unpack(">II", found[1]) for found in _EXTENT.finditer(content))
    return opened, max((width * height for width, height in sizes), default=0)
