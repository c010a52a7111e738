"""Images of a report: heat maps laid over them, contact sheets, and PNGs that live inside a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError

_LUMINANCE = (0.299, 0.587, 0.114)
_CAPTION_HEIGHT = 14
_GAP = 2


@dataclass(frozen=True, eq=False)
class Example:
    """One test image and what the model made of it.

    ``image`` is uint8 (C, H, W), ``heat`` (H, W) in [0, 1] or None. ``known`` says whether ``truth`` is a
    class the model was trained on; None where nobody knows the truth.
    """

    image: Tensor
    heat: Tensor | None
    truth: str
    predicted: str
    score: float
    accepted: bool
    known: bool | None = None

    @property
    def right(self) -> bool | None:
        """Whether the verdict is right: a known class named as such, or an unknown one rejected."""
        if self.known is None:
            return None
        return self.accepted and self.predicted == self.truth if self.known else not self.accepted


def heat_overlay(image: Tensor, heat: Tensor, strength: float = 0.75) -> Tensor:
    """Lay a heat map over the grey picture: out = (1 − w)·grey + w·color(heat), w = strength·√heat.

    Cold places stay as they are and hot ones take the colors of "inferno", which grow evenly in brightness,
    so the map can be read without color vision. The root lets the mid-range be seen on dark pictures.

    ``image`` uint8 (C, H, W) or (N, C, H, W), C = 1 or 3; ``heat`` (H, W) or (N, H, W), in [0, 1]; returns
    uint8 (3, H, W) or (N, 3, H, W).
    """
    _check_image(image)
    if heat.shape != (*image.shape[:-3], *image.shape[-2:]):
        raise UserError(f"heat of shape {tuple(heat.shape)} does not fit images {tuple(image.shape)}")
    heat = heat.detach().to(torch.float32).nan_to_num(0.0).clamp(0.0, 1.0)
    weights = torch.tensor(_LUMINANCE, device=image.device)
    grey = torch.einsum("...chw,c->...hw", _to_rgb(image).to(torch.float32), weights)
    color = _load_colors().to(image.device)[(heat * 255).round().long()].movedim(-1, -3)
    w = (strength * heat.sqrt()).unsqueeze(-3)
    return ((1 - w) * grey.unsqueeze(-3) + w * color).round().clamp(0, 255).to(torch.uint8)


def heat_gradient_css() -> str:
    """Return the colors of ``heat_overlay`` from cold to hot as a CSS gradient, for a legend."""
    stops = _load_colors()[torch.linspace(0, 255, 6).long()].round().int().tolist()
    return "linear-gradient(to right, " + ", ".join("#{:02x}{:02x}{:02x}".format(*rgb) for rgb in stops) + ")"


def contact_sheet(
    images: Tensor, columns: int = 8, scale: int = 1, captions: Sequence[str] | None = None
) -> bytes:
    """Return a PNG with uint8 ``images`` (N, C, H, W) in rows of ``columns``, each pixel ``scale`` wide."""
    _check_image(images)
    if images.dim() != 4 or columns < 1 or scale < 1:
        raise UserError(f"a contact sheet needs images (N, C, H, W), columns ≥ 1 and scale ≥ 1; got images "
                        f"{tuple(images.shape)}, columns={columns}, scale={scale}")  # fmt: skip
    n = len(images)
    if captions is not None and len(captions) != n:
        raise UserError(f"{len(captions)} captions for {n} images; give one per image")
    columns = max(1, min(columns, n))
    rows = max(1, -(-n // columns))
    below = _CAPTION_HEIGHT if captions is not None else 0

    tiles = _to_rgb(images).cpu().repeat_interleave(scale, -2).repeat_interleave(scale, -1)
    tiles = F.pad(tiles, (_GAP, _GAP, _GAP, _GAP + below), value=255)
    height, width = tiles.shape[-2:]
    empty = tiles.new_full((rows * columns - n, 3, height, width), 255)
    tiles = torch.cat([tiles, empty]).view(rows, columns, 3, height, width)
    sheet = tiles.permute(2, 0, 3, 1, 4).reshape(3, rows * height, columns * width)
    if captions is None:
        return png(sheet)
    corners = [(i % columns * width + _GAP, (i // columns + 1) * height - below) for i in range(n)]
    return _add_captions(sheet, captions, corners, width - 2 * _GAP)


def png(image: Tensor) -> bytes:
    """Encode uint8 (C, H, W), C = 1 or 3, as PNG. The same picture gives the same bytes."""
    from PIL import Image

    _check_image(image)
    buffer = io.BytesIO()
    Image.fromarray(_to_rgb(image).permute(1, 2, 0).cpu().contiguous().numpy()).save(buffer, format="PNG")
    return buffer.getvalue()


def png_data_uri(image: Tensor, smallest: int = 160, largest: int = 320) -> str:
    """Return uint8 ``image`` (C, H, W) or (H, W) as a ``data:`` address that an ``<img>`` can show.

    Tiny images are enlarged by a whole factor until their longer side reaches ``smallest``, with sharp
    pixels; images larger than ``largest`` are averaged down, so that photographs do not make the page heavy.
    """
    image = image.unsqueeze(0) if image.dim() == 2 else image
    _check_image(image)
    side = max(image.shape[-2:])
    if side > largest:
        size = [max(1, round(length * largest / side)) for length in image.shape[-2:]]
        image = F.interpolate(image[None].float(), size, mode="area")[0].round().to(torch.uint8)
    elif side < smallest:
        factor = -(-smallest // side)
        image = image.repeat_interleave(factor, -2).repeat_interleave(factor, -1)
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")


@lru_cache(maxsize=1)
def _load_colors() -> Tensor:
    """Return the 256 colors of "inferno" (256, 3), as floats from 0 to 255."""
    import matplotlib
    import numpy as np

    rgba = matplotlib.colormaps["inferno"](np.arange(256), bytes=True)
    return torch.from_numpy(np.asarray(rgba)[:, :3].astype(np.float32))


def _to_rgb(images: Tensor) -> Tensor:
    return images.expand(*images.shape[:-3], 3, *images.shape[-2:])


def _check_image(image: Tensor) -> None:
    if image.dtype != torch.uint8 or image.dim() not in (3, 4) or image.shape[-3] not in (1, 3):
        raise UserError(
            f"expected uint8 images (C, H, W) with 1 or 3 channels, got {image.dtype} {tuple(image.shape)}"
        )
    if 0 in image.shape[-2:]:
        raise UserError(f"an image of shape {tuple(image.shape)} has no pixels")


def _add_captions(
    sheet: Tensor, captions: Sequence[str], corners: Sequence[tuple[int, int]], width: int
) -> bytes:
    """Write each caption at its corner, cut where it would run into its neighbour."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(sheet.permute(1, 2, 0).contiguous().numpy())
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=10)
    for caption, corner in zip(captions, corners, strict=True):
        text = " ".join(caption.split())
        while text and pen.textlength(text, font=font) > width:
            text = text[:-2] + "…" if len(text) > 2 else ""
        pen.text(corner, text, fill=(30, 30, 30), font=font)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()
