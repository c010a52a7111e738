"""Damaged images of every format that Pillow can both write and read here, from a fixed seed."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
from PIL import Image

Random = np.random.Generator
_MODES = ("RGB", "RGBA", "L", "P", "1", "I;16", "F", "CMYK")
# Not every compression and mode: writing a palette with "jpeg", or anything with "webp", corrupts memory.
_TIFF = {
    "raw": _MODES,
    "tiff_lzw": ("RGB", "P"),
    "tiff_adobe_deflate": ("RGB", "I;16", "F"),
    "packbits": ("RGB", "1"),
    "group4": ("1",),
    "jpeg": ("RGB", "L"),
    "zstd": ("RGB",),
    "lzma": ("RGB",),
}
_SIDE = 24


@functools.cache  # a second of work
def whole_images() -> Mapping[str, bytes]:
    """Encode one picture in each format, mode and compression that this build of Pillow writes and reads."""
    Image.init()
    both = sorted(set(Image.OPEN) & set(Image.SAVE))
    ways: list[tuple[str, str, tuple[str, ...], dict[str, object]]] = [
        (name, name, _MODES, {}) for name in both if name != "TIFF"
    ]
    ways += [(f"TIFF {way}", "TIFF", modes, {"compression": way}) for way, modes in _TIFF.items()]
    ways += [("WEBP lossless", "WEBP", ("RGBA",), {"lossless": True})]
    ways += [("JPEG progressive", "JPEG", ("RGB",), {"progressive": True})]
    turned = ("JPEG", "PNG", "WEBP", "AVIF", "TIFF")
    ways += [(f"{kind} with EXIF", kind, ("RGB",), {"exif": _exif()}) for kind in turned]
    moving = ("GIF", "WEBP", "PNG", "TIFF", "AVIF", "MPO")
    ways += [(f"{kind} of three frames", kind, ("RGB",), _frames()) for kind in moving]
    found = {}
    for name, kind, modes, options in ways:
        for mode in modes:
            content = _encoded(kind, mode, options)
            if content is not None:
                found[f"{name}, {mode}"] = content
    return MappingProxyType(found)


def damaged(content: bytes, count: int, random: Random) -> Iterator[bytes]:
    """Yield ``count`` copies with one byte changed, and a quarter as many that end too early."""
    for position, value in zip(
        random.integers(len(content), size=count), random.integers(1, 256, size=count), strict=True
    ):
        broken = bytearray(content)
        broken[position] ^= value
        yield bytes(broken)
    for length in random.integers(1, len(content), size=count // 4):
        yield content[:length]


def _picture(mode: str) -> Image.Image:
    pixels = np.random.default_rng(7).integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)
    pixels[: _SIDE // 2] = (200, 40, 90)  # runs, so that compressions have something to do
    image = Image.fromarray(pixels)
    if mode == "I;16":
        return Image.fromarray(pixels[..., 0].astype(np.uint16) << 8)
    return image if mode == "RGB" else image.convert(mode)


def _exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def _frames() -> dict[str, object]:
    more = [Image.new("RGB", (_SIDE, _SIDE), colour) for colour in ("red", "green")]
    return {"save_all": True, "append_images": more}


def _encoded(kind: str, mode: str, options: dict[str, object]) -> bytes | None:
    """Return None where this build cannot write the picture so, or cannot read it back."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _picture(mode).save(file, kind, **options)
            Image.open(io.BytesIO(file.getvalue())).load()
        except Exception:
            return None
    return file.getvalue()


def damaged_avif() -> bytes:
    """Return an AVIF on which Pillow raises RuntimeError, as about every twelfth damaged one does."""
    whole = _encoded("AVIF", "RGB", {})
    assert whole is not None, "this build of Pillow has no AVIF"
    for broken in damaged(whole, 1000, np.random.default_rng(0)):
        try:
            Image.open(io.BytesIO(broken)).load()
        except RuntimeError:
            return broken
        except Exception:
            continue
    raise AssertionError("no damage made Pillow raise RuntimeError")
