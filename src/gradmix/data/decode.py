"""One encoded image, whatever its format, mode, rotation or depth, to plain grey or colour pixels."""

from __future__ import annotations

import functools
import io
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

_GREY_MODES = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
_TRANSPARENT_MODES = {"RGBA", "RGBa", "LA", "La", "PA"}
_DEEP_MODES = {"I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
MOST_PIXELS = 89_478_485  # Pillow's own warning level (a quarter gigabyte of RGB); here it is the limit

# What Pillow's plug-ins are known to raise on files that are not what they claim to be.
_UNREADABLE = (OSError, ValueError, SyntaxError, struct.error, EOFError, IndexError, KeyError, TypeError)


# Pillow asks its forty plug-ins one by one, which takes longer than decoding a small image does.
_BEGINNINGS = {
    b"\x89PNG": ("PNG",),
    b"RIFF": ("WEBP",),
    b"\xff\xd8\xff\xe0": ("JPEG",),
}


# Pillow knows more, and runs another program for some (EPS: Ghostscript), whatever the file is called.
# The usual ones first: they are tried in this order.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF")


@functools.cache
def _formats() -> tuple[str, ...]:
    """Those that this build of Pillow has."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


class Unreadable(Exception):
    """This image cannot be used; the text says why."""


@contextmanager
def bombs_refused() -> Iterator[None]:
    """Turn Pillow's warning about a decompression bomb into its refusal while the block runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        # Corrupt EXIF blocks are common and harmless: the pixels are what is wanted.
        warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
        yield


def open_image(source: Path | bytes) -> Image.Image:
    """Open, but do not decode: size, mode and rotation are known, pixels are not yet."""
    try:
        if (source.stat().st_size if isinstance(source, Path) else len(source)) == 0:
            raise Unreadable("is empty (0 bytes)")
        if isinstance(source, bytes):
            image = Image.open(io.BytesIO(source), formats=_BEGINNINGS.get(source[:4]) or _formats())
        else:
            image = Image.open(source, formats=_formats())
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Unreadable(f"is too large: more than {MOST_PIXELS:,} pixels") from error
    except UnidentifiedImageError as error:
        raise Unreadable("is not an image in a known format") from error
    except PermissionError as error:
        raise Unreadable("may not be read (permission denied)") from error
    except _UNREADABLE as error:
        raise Unreadable(f"cannot be opened ({error})") from error
    if image.width * image.height > MOST_PIXELS:
        raise Unreadable(f"is too large: {image.width} x {image.height} pixels")
    return image


def decode(source: Path | bytes, size: int | None = None) -> Image.Image:
    """Decode to mode L or RGB, upright, on white where transparent; to size × size if that is given."""
    image = open_image(source)
    try:
        if size is not None:
            # JPEGs can be decoded at 1/2, 1/4 or 1/8; twice the wanted size keeps the quality.
            image.draft(None, (2 * size, 2 * size))
        image.load()
        plain = _plain(_upright(image))
    except _UNREADABLE as error:
        raise Unreadable(f"is damaged ({error})") from error
    return plain if size is None else _fit_square(plain, size)


def upright_size(image: Image.Image) -> tuple[int, int]:
    """(height, width) of an opened image after the rotation that its EXIF block asks for."""
    try:
        # Pillow turns TIFFs by itself.
        sideways = image.format != "TIFF" and image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    except _UNREADABLE:
        sideways = False
    return (image.width, image.height) if sideways else (image.height, image.width)


def _upright(image: Image.Image) -> Image.Image:
    says_nothing = image.format != "TIFF" and not {"exif", "xmp", "Raw profile type exif"} & image.info.keys()
    return image if says_nothing else ImageOps.exif_transpose(image)


def _plain(image: Image.Image) -> Image.Image:
    grey = image.mode in _GREY_MODES
    if image.mode in _DEEP_MODES:
        return _to_eight_bits(image)
    if image.mode in _TRANSPARENT_MODES or "transparency" in image.info:
        coloured = image.convert("RGBA")
        white = Image.new("RGBA", coloured.size, "white")
        image = Image.alpha_composite(white, coloured)
    wanted = "L" if grey else "RGB"
    return image if image.mode == wanted else image.convert(wanted)


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 or 32 bits, or floating point: Pillow's own conversion would clip at 255."""
    pixels = np.asarray(image)
    if image.mode == "F":
        scale = 255.0 if pixels.size and float(np.nanmax(pixels)) <= 1 else 1.0
        pixels = np.nan_to_num(pixels) * scale
    elif image.mode != "I" or pixels.max(initial=0) > 255:  # "I" may hold 8 bits or 16
        pixels = pixels.astype(np.int64) >> 8
    return Image.fromarray(pixels.clip(0, 255).round().astype(np.uint8))


def _fit_square(image: Image.Image, size: int) -> Image.Image:
    """The central square, resized: the same geometry as :func:`gradmix.data.resize.fit_square`."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    square = image if image.size == (side, side) else image.crop(box)
    return square if side == size else square.resize((size, size), Image.Resampling.BILINEAR)
