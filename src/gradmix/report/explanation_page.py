"""Write explanations: DIR/explain.html, DIR/explain.json, and one PNG per image."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from ..detection import describe_answer
from ..files import write_atomically, write_text
from ..recognition import Explanation
from .canvas import shorten
from .pictures import heat_gradient_css, heat_overlay, png_data_uri

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

_MARGIN, _LARGE, _SMALL, _LINE = 12, 192, 96, 20
_INK, _MUTED, _KNOWN, _UNKNOWN = (30, 30, 30), (110, 110, 110), (0, 114, 178), (198, 84, 0)


def write_explanations(explanations: Sequence[Explanation], out: Path, title: str) -> list[Path]:
    """Write page, data and pictures into the folder ``out`` (made if needed); return the files."""
    out.mkdir(parents=True, exist_ok=True)
    names = [f"{i:03d}-{_make_file_name(e.source)}.png" for i, e in enumerate(explanations, start=1)]
    for name, explanation in zip(names, explanations, strict=True):
        picture = explanation_png(explanation)
        write_atomically(out / name, partial(_write, picture))
    data = [e.to_dict() | {"picture": name} for name, e in zip(names, explanations, strict=True)]
    write_text(out / "explain.json", json.dumps({"images": data}, ensure_ascii=False) + "\n")
    write_text(out / "explain.html", explanation_html(explanations, title))
    return [out / "explain.html", out / "explain.json", *(out / name for name in names)]


def explanation_html(explanations: Sequence[Explanation], title: str) -> str:
    """Return one self-contained page; the same explanations give the same bytes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("gradmix.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("explanation.html.jinja").render(
        title=title,
        explanations=explanations,
        verdict=verdict,
        place=_locate_on_bar,
        plain=png_data_uri,
        heated=lambda e: png_data_uri(heat_overlay(e.image, e.heat)),
        heat_gradient=heat_gradient_css(),
    )


def verdict(explanation: Explanation) -> str:
    """Return the decision in one sentence."""
    nearest = explanation.classes[0].name
    if not math.isfinite(explanation.threshold):
        return f"{nearest}: this model has no threshold yet and rejects nothing"
    return describe_answer(nearest, explanation.known, explanation.p_value)


def explanation_png(explanation: Explanation) -> bytes:
    """Return a PNG: the image, its heat map, the verdict, and a row of neighbors per nearest class."""
    from PIL import Image, ImageDraw, ImageFont

    e = explanation
    most = max((len(c.neighbours) for c in e.classes), default=0)
    width = 2 * _MARGIN + max(2 * _LARGE + _MARGIN, most * (_SMALL + _MARGIN), 560)
    row = _LINE + _SMALL + _LINE + _MARGIN
    height = _MARGIN + 2 * _LINE + _LARGE + 2 * _MARGIN + row * len(e.classes)
    sheet = Image.new("RGB", (width, height), (255, 255, 255))
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=14)
    y = _MARGIN
    for text, color in ((verdict(e), _KNOWN if e.known else _UNKNOWN), (e.source, _MUTED)):
        _write_text(pen, (_MARGIN, y), text, color, font, width - 2 * _MARGIN)
        y += _LINE
    for i, picture in enumerate((e.image, heat_overlay(e.image, e.heat))):
        sheet.paste(_to_picture(picture, _LARGE), (_MARGIN + i * (_LARGE + _MARGIN), y))
    y += _LARGE + 2 * _MARGIN
    for evidence in e.classes:
        heading = f"{shorten(evidence.name, 40)}: mean cosine of the nearest {evidence.similarity:.3f}"
        _write_text(pen, (_MARGIN, y), heading, _INK, font, width - 2 * _MARGIN)
        for i, near in enumerate(evidence.neighbours):
            x = _MARGIN + i * (_SMALL + _MARGIN)
            if near.picture is None:
                pen.rectangle((x, y + _LINE, x + _SMALL, y + _LINE + _SMALL), outline=_MUTED)
                _write_text(pen, (x + 4, y + _LINE + 4), Path(near.source).name, _MUTED, font, _SMALL - 8)
            else:
                sheet.paste(_to_picture(near.picture, _SMALL), (x, y + _LINE))
            pen.text((x, y + _LINE + _SMALL), f"{near.similarity:.3f}", fill=_MUTED, font=font)
        y += row
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()


def _to_picture(image: Tensor, side: int) -> Image:
    """Resize uint8 (C, H, W) to ``side`` × ``side``: enlarge with sharp pixels, reduce by averaging."""
    from PIL import Image

    mode = "nearest" if image.shape[-1] < side else "area"
    scaled = F.interpolate(image[None].float(), (side, side), mode=mode)[0].round().to(torch.uint8)
    return Image.fromarray(scaled.expand(3, -1, -1).permute(1, 2, 0).contiguous().cpu().numpy())


def _write_text(
    pen: ImageDraw, where: tuple[int, int], text: str, color: tuple[int, ...], font: object, width: int
) -> None:
    """Write one line of text, cut where it would leave the picture."""
    text = "".join(c if c.isprintable() else " " for c in text)
    while len(text) > 2 and pen.textlength(text, font=font) > width:  # type: ignore[arg-type]
        text = text[:-2] + "…"
    pen.text(where, text, fill=color, font=font)  # type: ignore[arg-type]


def _locate_on_bar(e: Explanation) -> dict[str, float] | None:
    """Return the positions of score and threshold on a bar, in per cent; None without a threshold."""
    if not math.isfinite(e.threshold):
        return None
    low, high = sorted((e.score, e.threshold))
    room = max(high - low, 1e-6 * max(1.0, abs(high))) * 0.5
    share = [100 * (value - (low - room)) / (high - low + 2 * room) for value in (e.score, e.threshold)]
    return {"score": round(share[0], 1), "threshold": round(share[1], 1)}


def _make_file_name(source: str) -> str:
    """Return the part of an image's name that is a valid file name on every system.

    >>> _make_file_name("new/photo 3.jpg")
    'photo_3'
    """
    return re.sub(r"[^\w.-]+", "_", Path(source).stem)[:60] or "image"


def _write(content: bytes, part: Path) -> None:
    part.write_bytes(content)
