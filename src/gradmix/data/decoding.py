"""Encoded images to pixels: one of any format, mode, rotation or depth; or many in threads."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from ..errors import UserError, first_line
from ..machine import count_cores
from ..progress import Advance, progress
from .file_names import INSTALL_HEIF, can_read_heif
from .heif import begins_as_heif, open_heif
from .mapped_images import Pixels
from .resize import is_gray, to_gray

MAX_CHOSEN_SIZE = 64
_IMAGES_PER_TASK = 64  # a future per image would cost more than decoding a small one
Source = Path | bytes
Bar = Callable[[str, int], AbstractContextManager[Advance]]

_GREY_MODES = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
_TRANSPARENT_MODES = {"RGBA", "RGBa", "LA", "La", "PA"}
_DEEP_MODES = {"I", "F", "I;16", "I;16L", "I;16B", "I;16N"}
_PIXELS_PER_BAND = 1 << 22
MAX_PIXELS = 89_478_485  # Pillow's own warning level (a quarter gigabyte of RGB); here it is the limit

# Pillow asks its forty plug-ins one by one, which takes longer than decoding a small image does.
_BEGINNINGS = {
    b"\x89PNG": ("PNG",),
    b"RIFF": ("WEBP",),
    b"\xff\xd8\xff\xe0": ("JPEG",),
}


# Pillow reads more formats, and runs another program for some (EPS: Ghostscript), so it may try only these.
# The usual ones first: they are tried in this order.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF")


@functools.cache
def _formats() -> tuple[str, ...]:
    """Return the formats that this build of Pillow has."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


class Unreadable(Exception):
    """This image cannot be used; the text says why."""


class refuse_damage:
    """Raise Unreadable, which begins with ``what``, for any error in the block: it calls nothing but Pillow.

    Pillow's plug-ins and the C libraries below them have no common error: besides OSError and ValueError, a
    damaged file was seen to raise SyntaxError, struct.error, KeyError, and RuntimeError (AVIF). A list of
    them is never complete. MemoryError tells about this machine, not about the file, and passes.
    """

    # A class, because a generator would cost a small image a twentieth of its decoding.
    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, Unreadable | MemoryError):
            return
        if isinstance(error, PermissionError):
            raise Unreadable("may not be read (permission denied)") from error
        if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
            raise Unreadable(f"is too large: more than {MAX_PIXELS:,} pixels") from error
        if isinstance(error, UnidentifiedImageError):
            raise Unreadable("is not an image in a known format") from error
        raise Unreadable(f"{self._what} ({first_line(error)})") from error


@contextmanager
def refuse_bombs() -> Iterator[None]:
    """Turn Pillow's warning about a decompression bomb into its refusal while the block runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        # Corrupt EXIF blocks are common and harmless: the pixels are what is wanted.
        warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
        yield


def open_image(source: Path | bytes) -> Image.Image:
    """Open, but do not decode: size, mode and rotation are known, pixels are not yet."""
    with refuse_damage("cannot be opened"):
        if (source.stat().st_size if isinstance(source, Path) else len(source)) == 0:
            raise Unreadable("is empty (0 bytes)")
        try:
            image = _open(source)
        except UnidentifiedImageError:
            if not begins_as_heif(source):
                raise
            if not can_read_heif():
                raise Unreadable(f"is a HEIC picture; to read those: {INSTALL_HEIF}") from None
            image, declared = open_heif(source)
            if declared > MAX_PIXELS:
                raise Unreadable(f"is too large: {declared:,} pixels") from None
    if image.width * image.height > MAX_PIXELS:
        raise Unreadable(f"is too large: {image.width} x {image.height} pixels")
    return image


def _open(source: Path | bytes) -> Image.Image:
    if isinstance(source, bytes):
        return Image.open(io.BytesIO(source), formats=_BEGINNINGS.get(source[:4]) or _formats())
    return Image.open(source, formats=_formats())


def decode(source: Path | bytes, size: int | None = None) -> Image.Image:
    """Decode to mode L or RGB, upright, on white where transparent; to size × size if that is given."""
    image = open_image(source)
    with refuse_damage("is damaged"):
        if size is not None:
            # JPEGs can be decoded at 1/2, 1/4 or 1/8; twice the wanted size keeps the quality.
            image.draft(None, (2 * size, 2 * size))
        image.load()
        plain = _plain(_upright(image))
        return plain if size is None else _fit_square(plain, size)


def make_plain(image: Image.Image, size: int | None = None) -> Image.Image:
    """Return what :func:`decode` would, of an image that is open already and stays as it is."""
    if image.width * image.height > MAX_PIXELS:
        raise Unreadable(f"is too large: {image.width} x {image.height} pixels")
    with refuse_damage("is damaged"), refuse_bombs():
        image.load()
        plain = _plain(ImageOps.exif_transpose(image) if _has_rotation(image) else image)
        return plain if size is None else _fit_square(plain, size)


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return (height, width) of an opened image after the rotation that its EXIF block asks for."""
    try:
        with refuse_damage("has a damaged EXIF block"):
            # Pillow turns TIFFs by itself.
            sideways = image.format != "TIFF" and image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    except Unreadable:
        sideways = False
    return (image.width, image.height) if sideways else (image.height, image.width)


def _upright(image: Image.Image) -> Image.Image:
    if _has_rotation(image):
        ImageOps.exif_transpose(image, in_place=True)  # without a copy where there is nothing to turn
    return image


def _has_rotation(image: Image.Image) -> bool:
    """Return whether the file may say how the image is to be turned."""
    return image.format == "TIFF" or bool({"exif", "xmp", "Raw profile type exif"} & image.info.keys())


def _plain(image: Image.Image) -> Image.Image:
    grey = image.mode in _GREY_MODES
    if image.mode in _DEEP_MODES:
        return _to_eight_bits(image)
    wanted = "L" if grey else "RGB"
    if image.mode in _TRANSPARENT_MODES or "transparency" in image.info:
        return _on_white(image, wanted)
    return image if image.mode == wanted else image.convert(wanted)


def _on_white(image: Image.Image, mode: str) -> Image.Image:
    """Lay a transparent image on white."""
    plain = Image.new(mode, image.size)
    for top, band in _bands(image):
        coloured = band.convert("RGBA")
        white = Image.new("RGBA", coloured.size, "white")
        plain.paste(Image.alpha_composite(white, coloured).convert(mode), (0, top))
    return plain


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Convert gray of 16 or 32 bits or floating point; Pillow's own conversion would clip at 255."""
    plain = Image.new("L", image.size)
    largest = max(_finite(band).max(initial=0) for _, band in _bands(image))
    for top, band in _bands(image):
        pixels = _finite(band)
        if image.mode == "F":
            pixels = (pixels.clip(0, None) * (255.0 if largest <= 1 else 1.0)).clip(0, 255).round()
        elif image.mode != "I" or largest > 255:  # "I" may hold 8 bits or 16
            pixels = pixels >> 8
        plain.paste(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), (0, top))
    return plain


def _finite(image: Image.Image) -> np.ndarray:
    """Return the pixels without NaN and infinity: of those in a damaged file numpy would warn."""
    pixels: np.ndarray = np.nan_to_num(np.asarray(image))
    return pixels


def _bands(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Yield the image in bands of rows, with the first row of each: so copies of a large one stay small."""
    height = max(1, _PIXELS_PER_BAND // image.width)
    for top in range(0, image.height, height):
        yield top, image.crop((0, top, image.width, min(top + height, image.height)))


def _fit_square(image: Image.Image, size: int) -> Image.Image:
    """Return the central square, resized, with the geometry of :func:`gradmix.data.resize.fit_square`."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    square = image if image.size == (side, side) else image.crop(box)
    return square if side == size else square.resize((size, size), Image.Resampling.BILINEAR)


@dataclass(frozen=True)
class BadImage:
    """An image that could not be read: ``name`` (its path or row) and the ``reason``."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} {self.reason}"


class MixedShapes(Exception):
    """The images do not all have the promised size."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """``images`` (n, C, H, W) uint8; ``kept`` (n,) says which of the sources each is; the rest is ``bad``."""

    images: Pixels
    kept: Tensor
    bad: tuple[BadImage, ...] = ()


def decode_many(
    sources: Sequence[Source],
    names: Sequence[str],
    shape: tuple[int, int] | None = None,
    size: int | None = None,
    channels: int | None = None,
    bar: Bar = progress,
) -> Decoded:
    """Decode all of ``sources``; the result does not depend on the order in which threads finish.

    ``shape`` promises that all are H × W already (MixedShapes is raised if not). Otherwise each becomes a
    size × size square, where ``size`` None stands for :func:`choose_size`. ``channels`` None is 1 if every
    single image is grey, else 3. ``bar`` shows the progress.
    """
    bad: dict[int, str] = {}
    if shape is None and size is None:
        size, bad = choose_size(sources)
    height, width = shape or (size, size)
    assert height is not None
    assert width is not None
    pixels = np.zeros((len(sources), height, width, 3 if channels is None else channels), dtype=np.uint8)
    mode = "L" if channels == 1 else "RGB"

    def decode_into(i: int) -> None:
        image = decode(sources[i], None if shape else size)
        if image.size != (width, height):
            raise MixedShapes
        plain = np.asarray(image if image.mode == mode else image.convert(mode))
        pixels[i] = plain if plain.ndim == 3 else plain[..., None]

    bad |= _for_each(decode_into, [i for i in range(len(sources)) if i not in bad], "decoding images", bar)
    kept = np.array([i for i in range(len(sources)) if i not in bad], dtype=np.int64)
    if bad:
        pixels = pixels[kept]
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    if channels is None and len(images) and is_gray(images):
        images = to_gray(images)
    return Decoded(images, torch.from_numpy(kept), tuple(BadImage(names[i], bad[i]) for i in sorted(bad)))


def choose_size(sources: Sequence[Source]) -> tuple[int, dict[int, str]]:
    """Return the median shorter side, at most 64 pixels, and the images that cannot be opened."""
    shapes, bad = read_shapes(sources)
    sides = [min(shape) for shape in shapes if shape is not None]
    return min(MAX_CHOSEN_SIZE, median_low(sides)) if sides else MAX_CHOSEN_SIZE, bad


def read_shapes(sources: Sequence[Source]) -> tuple[list[tuple[int, int] | None], dict[int, str]]:
    """Return (height, width) of each image, from its header; None where it is bad, with the reason."""
    shapes: list[tuple[int, int] | None] = [None] * len(sources)

    def look(i: int) -> None:
        with open_image(sources[i]) as image:
            shapes[i] = upright_size(image)

    bad = _for_each(look, range(len(sources)), "looking at image sizes")
    return shapes, bad


def raise_if_bad(bad: Sequence[BadImage], skip_bad: bool) -> None:
    """Raise for the first bad image, unless they are to be skipped."""
    if bad and not skip_bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise UserError(f"{bad[0]}{more}; --skip-bad (skip_bad=True) goes on without")


def _for_each(
    work: Callable[[int], None], indices: Sequence[int], what: str, bar: Bar = progress
) -> dict[int, str]:
    """Call ``work(i)`` for all, in threads; return the reason for each i that was Unreadable."""
    bad: dict[int, str] = {}

    def work_on(part: Sequence[int]) -> int:
        for i in part:
            try:
                work(i)
            except Unreadable as reason:
                bad[i] = str(reason)
        return len(part)

    parts = [indices[i : i + _IMAGES_PER_TASK] for i in range(0, len(indices), _IMAGES_PER_TASK)]
    if len(parts) < 2:  # nothing to share among threads
        with refuse_bombs(), bar(what, len(indices)) as advance:
            advance(work_on(indices))
        return bad
    workers = min(8, count_cores())
    with refuse_bombs(), bar(what, len(indices)) as advance, ThreadPoolExecutor(workers) as pool:
        try:
            for done in pool.map(work_on, parts):
                advance(done)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # Ctrl-C must not wait for a hundred thousand images
            raise
    return bad
