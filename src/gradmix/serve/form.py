"""A request's body to its parts: multipart/form-data, or one image as it is.

The body is in memory already (:mod:`.gate` counted it), so its parts are found by splitting: nothing is
spooled to disk, and a file's name is a name to show and never a path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from .refusal import Refusal, one_line

_PARAMETER = re.compile(r';\s*(name|filename|filename\*)=(?:"([^"]*)"|([^;\s]*))', re.IGNORECASE)
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^;\s"]{1,70}))', re.IGNORECASE)
_MOST_FIELDS = 16
_LONGEST_FIELD = 1000
_LONGEST_NAME = 100
IMAGES = "images"  # the field that holds the files


@dataclass(frozen=True)
class Upload:
    """The bytes of one image, and what its sender calls it."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Form:
    """The images of a request, and its text fields."""

    uploads: tuple[Upload, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)


def parse_form(body: bytes, content_type: str) -> Form:
    """The form in a body of that content type; refused with a reason if there is none."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("image/") or kind == "application/octet-stream":
        if not body:
            raise Refusal(422, "the body is empty; send an image")
        return Form((Upload("image", body),))
    if kind != "multipart/form-data":
        raise Refusal(
            415,
            f"send multipart/form-data with files in the field '{IMAGES}', or one image as the body with a "
            f"content type image/…; not {kind or 'a body without content type'}",
        )
    found = _BOUNDARY.search(content_type)
    if not found:
        raise Refusal(400, "the content type multipart/form-data names no boundary")
    uploads: list[Upload] = []
    fields: dict[str, str] = {}
    for head, content in split_parts(body, (found[1] or found[2]).encode("latin-1", "replace")):
        name, file_name = _names(head)
        if name == IMAGES and file_name is not None:
            uploads.append(Upload(shown_name(file_name, f"image {len(uploads) + 1}"), content))
        elif file_name is not None:
            raise Refusal(422, f"files go into the field '{IMAGES}', not '{name}'")
        elif len(fields) >= _MOST_FIELDS or len(content) > _LONGEST_FIELD:
            raise Refusal(413, f"the field '{name}' is too long, or there are more than {_MOST_FIELDS}")
        else:
            fields[name] = content.decode("utf-8", "replace")
    return Form(tuple(uploads), fields)


def split_parts(body: bytes, boundary: bytes) -> list[tuple[bytes, bytes]]:
    """(header lines, content) of each part (RFC 2046 § 5.1.1).

    >>> split_parts(b"--x\\r\\nA: b\\r\\n\\r\\nhello\\r\\n--x--\\r\\n", b"x")
    [(b'A: b', b'hello')]
    """
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise Refusal(400, "the multipart body is broken or cut off: its last boundary is missing")
    parts = []
    for piece in pieces[1:-1]:
        after, line_end, rest = piece.partition(b"\r\n")
        head, blank, content = (b"\r\n" + rest).partition(b"\r\n\r\n")
        if after.strip() or not line_end or not blank:
            raise Refusal(400, "the multipart body is broken: a part has no headers")
        parts.append((head[2:], content))
    return parts


def shown_name(name: str, otherwise: str) -> str:
    """What of a file's name may be shown and stored: its last part, printable.

    >>> shown_name("../../etc/pass\\x00wd", "image 1"), shown_name("C:\\\\cat.png", "image 1")
    ('pass wd', 'cat.png')
    """
    return one_line(re.split(r"[\\/]", name)[-1], _LONGEST_NAME) or otherwise


def _names(head: bytes) -> tuple[str, str | None]:
    """The field's name and the file's, if it is a file."""
    line = next(
        (one for one in head.split(b"\r\n") if one[:20].lower() == b"content-disposition:"), b""
    ).decode("utf-8", "replace")
    found = {key.lower(): quoted or bare for key, quoted, bare in _PARAMETER.findall(line)}
    if "name" not in found:
        raise Refusal(400, "the multipart body is broken: a part has no name")
    if "filename*" in found:  # RFC 5987: UTF-8''percent%20encoded
        return one_line(found["name"]), unquote(found["filename*"].rpartition("'")[2])
    return one_line(found["name"]), found.get("filename")
