"""Write the concerns about a folder of images: a list, and a contact sheet per kind."""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ..recognition.discover import check_free
from ..recognition.review import Concern, Review
from .pictures import contact_sheet

_NEAREST_SHOWN = 5
_MOST_ROWS = 50  # of a sheet; the list has all
_SIDE = 96


def write_review(review: Review, out: Path) -> None:
    """Write ``out``/findings.csv and ``out``/KIND.png for each kind of concern: all files or none.

    A row of a sheet is the image and, beside it, its duplicate or its nearest images, with their classes.
    """
    check_free(out)
    part = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".part"))
    try:
        (part / "findings.csv").write_bytes(_to_csv(review).encode("utf-8", "backslashreplace"))
        for kind in dict.fromkeys(concern.kind for concern in review.concerns):
            shown = [concern for concern in review.concerns if concern.kind == kind][:_MOST_ROWS]
            name = "".join(c if c.isalpha() else "-" for c in kind).strip("-")
            (part / f"{name}.png").write_bytes(draw_concerns(review, shown))
        part.chmod(0o755)
        part.rename(out)
    except OSError as error:
        raise UserError(f"could not write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def draw_concerns(review: Review, concerns: list[Concern]) -> bytes:
    """Return a PNG: one row per concern, the image first."""
    pictures: list[Tensor] = []
    captions: list[str] = []
    columns = 1 + min(_NEAREST_SHOWN, review.nearest.shape[1])
    for concern in concerns:
        others = [concern.second] if concern.second is not None else review.nearest[concern.first].tolist()
        numbers = [concern.first, *others][:columns]
        pictures += [_fit(review.pixels(number)) for number in numbers]
        captions += [review.class_name(number) for number in numbers]
        empty = columns - len(numbers)
        pictures += [torch.full_like(pictures[-1], 255)] * empty
        captions += [""] * empty
    return contact_sheet(torch.stack(pictures), columns, captions=captions)


def _fit(pixels: Tensor) -> Tensor:
    """Resize uint8 (C, H, W) to the side that all pictures of a sheet have."""
    mode = "nearest" if pixels.shape[-1] < _SIDE else "area"
    return F.interpolate(pixels[None].float(), (_SIDE, _SIDE), mode=mode)[0].round().to(torch.uint8)


def _to_csv(review: Review) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("finding", "file", "other", "what", "sure"))
    for c in review.concerns:
        other = "" if c.second is None else review.name(c.second)
        rows.writerow((c.kind, review.name(c.first), other, c.what, round(c.sure, 4)))
    return text.getvalue()
