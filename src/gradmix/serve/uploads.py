"""The body of a request to pixels: multipart/form-data or one image, in formats decoded in this process.

The body is in memory already (:mod:`.guard` counted it), so its parts are found by splitting: nothing is
written to disk, and a file's name is shown but never used as a path. How many pixels a request has is known
from the headers of its images, before the first is decoded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from ..data import ImageFormat, ImageSet, Unreadable, decode, open_image, refuse_damage
from ..data.heif import is_heif
from .http import HTTPError, one_line
from .limits import Limits

IMAGES_FIELD = "images"  # the field of the form that holds the files
# Folders may hold more formats, but those are hardly ever sent, and their readers are tested less.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP")
_PARAMETER = re.compile(r';\s*(name|filename|filename\*)=(?:"([^"]*)"|([^;\s]*))', re.IGNORECASE)
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^;\s"]{1,70}))', re.IGNORECASE)
_MOST_PARTS = 10_000
_LONGEST_HEAD = 8 * 1024  # bytes of the headers of a part
_MOST_FIELDS = 16
_LONGEST_FIELD = 1000
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Upload:
    """The bytes of one image, and the name its sender gave it."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Form:
    """The images of a request, and its text fields."""

    uploads: tuple[Upload, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)


def parse_form(body: bytes, content_type: str) -> Form:
    """Return the form in a body of that content type; raise 400, 413, 415 or 422 if there is none."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("image/") or kind == "application/octet-stream":
        if not body:
            raise HTTPError(422, "the body is empty; send an image")
        return Form((Upload("image", body),))
    if kind != "multipart/form-data":
        raise HTTPError(
            415,
            f"send multipart/form-data with files in the field '{IMAGES_FIELD}', or one image as the body "
            f"with a content type image/…; not {kind or 'a body without content type'}",
        )
    found = _BOUNDARY.search(content_type)
    if not found:
        raise HTTPError(400, "the content type multipart/form-data names no boundary")
    uploads: list[Upload] = []
    fields: dict[str, str] = {}
    for head, content in split_parts(body, (found[1] or found[2]).encode("latin-1", "replace")):
        name, file_name = _parse_names(head)
        if name == IMAGES_FIELD and file_name is not None:
            uploads.append(Upload(display_name(file_name, f"image {len(uploads) + 1}"), content))
        elif file_name is not None:
            raise HTTPError(422, f"files go into the field '{IMAGES_FIELD}', not '{name}'")
        elif len(fields) >= _MOST_FIELDS or len(content) > _LONGEST_FIELD:
            raise HTTPError(413, f"the field '{name}' is too long, or there are more than {_MOST_FIELDS}")
        else:
            fields[name] = content.decode("utf-8", "replace")
    return Form(tuple(uploads), fields)


# Not python-multipart (0.0.33 was tried, twice): it rejects a preamble, takes a boundary with trailing spaces
# for content and so merges two files, accepts a body that is cut off, drops `filename*`, and logs a line per
# malformed request. What it has are limits; they are here too.
def split_parts(body: bytes, boundary: bytes) -> list[tuple[bytes, bytes]]:
    """Return (header lines, content) of each part (RFC 2046 § 5.1.1).

    >>> split_parts(b"--x\\r\\nA: b\\r\\n\\r\\nhello\\r\\n--x--\\r\\n", b"x")
    [(b'A: b', b'hello')]
    """
    line, body = b"\r\n--" + boundary, b"\r\n" + body
    begin = body.find(line) + len(line)
    parts: list[tuple[bytes, bytes]] = []
    while body[begin : begin + 2] != b"--":
        end = body.find(line, begin)
        if begin < len(line) or end < 0:
            raise HTTPError(400, "the multipart body is broken or cut off: its last boundary is missing")
        if len(parts) >= _MOST_PARTS:
            raise HTTPError(413, f"the multipart body has more than {_MOST_PARTS:,} parts")
        parts.append(_split_part(body, begin, end))
        begin = end + len(line)
    return parts


def _split_part(body: bytes, begin: int, end: int) -> tuple[bytes, bytes]:
    """Return header lines and content of the part between two boundaries; nothing larger is looked at."""
    first = body.find(b"\r\n", begin, end)  # the end of the boundary's own line
    blank = body.find(b"\r\n\r\n", first, min(end, first + _LONGEST_HEAD)) if first >= 0 else -1
    if first >= 0 and blank < 0 and end - first > _LONGEST_HEAD:
        raise HTTPError(413, f"the headers of a part are longer than {_LONGEST_HEAD:,} bytes")
    if blank < 0 or first - begin > _LONGEST_HEAD or body[begin:first].strip():
        raise HTTPError(400, "the multipart body is broken: a part has no headers")
    return body[first + 2 : blank], body[blank + 4 : end]


def display_name(name: str, otherwise: str) -> str:
    """Return what of a file's name may be shown and stored: its last part, printable.

    >>> display_name("../../etc/pass\\x00wd", "image 1"), display_name("C:\\\\cat.png", "image 1")
    ('pass wd', 'cat.png')
    """
    return one_line(re.split(r"[\\/]", name)[-1], _LONGEST_NAME) or otherwise


def _parse_names(head: bytes) -> tuple[str, str | None]:
    """Return the name of the field, and that of the file if the part is one."""
    line = next(
        (one for one in head.split(b"\r\n") if one[:20].lower() == b"content-disposition:"), b""
    ).decode("utf-8", "replace")
    found = {key.lower(): quoted or bare for key, quoted, bare in _PARAMETER.findall(line)}
    if "name" not in found:
        raise HTTPError(400, "the multipart body is broken: a part has no name")
    if "filename*" in found:  # RFC 5987: UTF-8''percent%20encoded
        return one_line(found["name"]), unquote(found["filename*"].rpartition("'")[2])
    return one_line(found["name"]), found.get("filename")


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """``images`` (n, C, S, S) uint8 of the uploads that could be read; ``errors`` of the others by position.

    ``names`` are of all uploads, ``kept`` (n) the positions of those that could be read.
    """

    images: Tensor
    names: tuple[str, ...]
    kept: tuple[int, ...]
    errors: dict[int, str]

    def image_set(self) -> ImageSet:
        """Return the images that could be read, unlabelled."""
        labels = torch.full((len(self.images),), -1)
        return ImageSet(self.images, labels, (), tuple(self.names[i] for i in self.kept))

    def require_all(self) -> DecodedImages:
        """Return the same, or raise 422 if a single upload could not be read: for changes of the model."""
        if self.errors:
            raise HTTPError(422, f"{next(iter(self.errors.values()))}; nothing was changed")
        return self


class UploadDecoder:
    """The uploads of one request: their headers are read at once, their pixels one image at a time.

    ``pixels`` is the cost of decoding all of them, ``next_pixels`` that of the next one.
    """

    def __init__(self, uploads: Sequence[Upload], wanted: ImageFormat, limits: Limits) -> None:
        limits.check_count(len(uploads))
        if not uploads:
            raise HTTPError(422, "there is no image in the request; put files into the field 'images'")
        self._uploads = uploads
        self._wanted = wanted
        self._kept: list[int] = []
        self._errors: dict[int, str] = {}
        self._ahead: deque[tuple[int, int]] = deque()  # position and pixels of those to decode
        for i, upload in enumerate(uploads):
            try:
                self._ahead.append((i, _pixels_to_decode(upload.content, wanted, limits.pixels)))
            except Unreadable as reason:
                self._note_error(i, reason)
        self.pixels = self.pixels_left = sum(pixels for _, pixels in self._ahead)
        self._squares = np.empty(
            (len(self._ahead), wanted.size, wanted.size, wanted.channels), dtype=np.uint8
        )

    @property
    def left(self) -> int:
        """Return the number of images still to be decoded."""
        return len(self._ahead)

    @property
    def next_pixels(self) -> int:
        return self._ahead[0][1] if self._ahead else 0

    def decode_next(self) -> None:
        """Decode one more image, in the order in which they were sent."""
        i, pixels = self._ahead.popleft()
        self.pixels_left -= pixels
        try:
            _decode_into(self._squares[len(self._kept)], self._uploads[i].content, self._wanted)
        except Unreadable as reason:
            self._note_error(i, reason)
        else:
            self._kept.append(i)

    def result(self) -> DecodedImages:
        """Return the images that could be decoded; raise 422 if there are none."""
        errors = dict(sorted(self._errors.items()))
        if not self._kept:
            more = "" if len(errors) == 1 else f" (and {len(errors) - 1} more; none can be read)"
            raise HTTPError(422, errors[0] + more)
        images = torch.from_numpy(self._squares[: len(self._kept)]).permute(0, 3, 1, 2)
        names = tuple(upload.name for upload in self._uploads)
        return DecodedImages(images, names, tuple(self._kept), errors)

    def _note_error(self, i: int, reason: Unreadable) -> None:
        self._errors[i] = one_line(f"{self._uploads[i].name} {reason}")


def decode_uploads(uploads: Sequence[Upload], wanted: ImageFormat, limits: Limits) -> DecodedImages:
    """Decode all uploads in the calling thread; raise 422 if none can be read."""
    decoder = UploadDecoder(uploads, wanted, limits)
    while decoder.left:
        decoder.decode_next()
    return decoder.result()


def _pixels_to_decode(content: bytes, wanted: ImageFormat, most_pixels: int) -> int:
    """Return the cost of an image from its header; raise Unreadable if it must not be decoded."""
    if is_heif(content):  # its library may decode more pixels than the header promises
        raise Unreadable(f"is HEIC; send one of {', '.join(FORMATS)}")
    with open_image(content) as opened:
        if opened.format not in FORMATS:
            raise Unreadable(f"is {opened.format}; send one of {', '.join(FORMATS)}")
        pixels = opened.width * opened.height
        if pixels > most_pixels:
            raise Unreadable(
                f"is too large: {opened.width} x {opened.height} pixels, the limit is {most_pixels:,}"
            )
        return max(pixels // 4, _pixels_reduced(opened, wanted)) if _is_baseline_jpeg(opened) else pixels


def _is_baseline_jpeg(opened: Image) -> bool:
    """Return whether it is decoded in one pass and at reduced size: four times as fast as others."""
    return opened.format in ("JPEG", "MPO") and not opened.info.get("progressive")


def _pixels_reduced(opened: Image, wanted: ImageFormat) -> int:
    with refuse_damage("is damaged"):
        opened.draft(None, (2 * wanted.size, 2 * wanted.size))  # as decode() does
        return opened.width * opened.height


def _decode_into(out: NDArray[np.uint8], content: bytes, wanted: ImageFormat) -> None:
    """Write the central square of one image into ``out`` (S, S, C)."""
    try:
        image = decode(content, wanted.size)
        mode = "L" if wanted.channels == 1 else "RGB"
        pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    except (MemoryError, OverflowError) as error:
        raise Unreadable("cannot be decoded") from error
    out[:] = pixels if pixels.ndim == 3 else pixels[..., None]
