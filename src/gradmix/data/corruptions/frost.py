"""Frost: pictures of ice laid over the images; from a folder, or a generated stand-in that says so."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import UserError
from ..decode import Unreadable, open_image
from ..roots import data_root
from .draws import Draws
from .motion import along_line
from .plasma import plasma

_ENDINGS = {".png", ".jpg", ".jpeg"}
# The published sets are made from six pictures, but their random choice never reaches the last one.
_USED = 5
_GENERATED_SIZE = 256
_DIRECTIONS, _NEEDLE, _RARE = 6, 9, 2.3  # of needles: directions a picture, length, deviations of their seeds


@dataclass(frozen=True, eq=False)
class FrostPictures:
    """Colour ``pictures``, each (3, h, w) uint8; ``generated`` if they are not photographs."""

    pictures: tuple[Tensor, ...]
    generated: bool = False
    origin: str = "generated"

    def enlarged(self, scale: float, height: int, width: int) -> FrostPictures:
        """The pictures at ``scale``, though no smaller than height × width; bilinear, as published."""
        scaled = []
        for picture in self.pictures:
            size = (max(height, int(picture.shape[1] * scale)), max(width, int(picture.shape[2] * scale)))
            small = F.interpolate(picture[None].double(), size, mode="bilinear", align_corners=False)
            scaled.append(small[0].round().to(torch.uint8))
        return FrostPictures(tuple(scaled), self.generated, self.origin)


def load_frost(folder: str | Path | None = None) -> FrostPictures:
    """Pictures from ``folder``, else from ``frost`` in the data folder, else generated (and flagged)."""
    place = Path(folder) if folder is not None else data_root() / "frost"
    if folder is None and not place.is_dir():
        return generated_frost()
    if not place.is_dir():
        raise UserError(f"no folder of frost pictures at {place}")
    files = sorted(file for file in place.iterdir() if file.suffix.lower() in _ENDINGS)[:_USED]
    if not files:
        raise UserError(f"no .png or .jpg frost picture in {place}")
    return FrostPictures(tuple(_read(file) for file in files), origin=str(place))


@lru_cache(maxsize=1)
def generated_frost() -> FrostPictures:
    """Needles in all directions on pale clouds, bluish white: the look of ice, though no photograph."""
    size = _GENERATED_SIZE
    draws = Draws(0, "generated frost", 1, 0, _USED * _DIRECTIONS)
    seeds = (draws.normal("needles", 1, size, size) > _RARE).double()
    needles = along_line(seeds, _NEEDLE, _NEEDLE, draws.between(0, 360, "direction"))
    needles = needles.view(_USED, _DIRECTIONS, size, size).sum(1)
    needles = (needles / needles.amax((1, 2), keepdim=True)).sqrt()
    clouds = plasma(Draws(0, "generated frost", 1, 0, _USED), size, 2.0)
    tint = torch.tensor([0.88, 0.94, 1.0], dtype=torch.float64).view(1, 3, 1, 1)
    light = (0.4 + 0.3 * clouds + 0.5 * needles).clamp(max=1)
    pixels = (light[:, None] * tint * 255).round().to(torch.uint8)
    return FrostPictures(tuple(pixels), generated=True)


def frost(
    images: Tensor,
    setting: tuple[float, float, float],
    draws: Draws,
    pictures: FrostPictures | None = None,
) -> Tensor:
    """a x + b f, f a random cut-out of a random picture; images (N, C, H, W) in [0, 1].

    Pictures differ in size, so they lie one after another in one buffer, from which every image gathers
    its cut-out. ``pictures`` None stands for those of :func:`load_frost`.
    """
    of_image, of_frost, scale = setting
    channels, height, width = images.shape[1:]
    ready = (pictures or load_frost()).enlarged(scale, height, width).pictures
    pixels = torch.cat([picture.flatten(1) for picture in ready], dim=1)  # (3, all pixels)
    if channels == 1:
        pixels = pixels.double().mean(0, keepdim=True)
    heights = torch.tensor([picture.shape[1] for picture in ready])
    widths = torch.tensor([picture.shape[2] for picture in ready])
    starts = (heights * widths).cumsum(0) - heights * widths
    chosen = draws.below(torch.tensor(len(ready)), "picture")
    stride = widths[chosen]
    top = draws.below(heights[chosen] - height + 1, "top")
    left = draws.below(stride - width + 1, "left")
    first = starts[chosen] + top * stride + left
    across = torch.arange(height)[:, None] * stride[:, None, None] + torch.arange(width)
    place = first[:, None, None] + across  # (N, H, W)
    overlay = pixels[:, place].transpose(0, 1).to(images.dtype) / 255
    return of_image * images + of_frost * overlay


def _read(file: Path) -> Tensor:
    try:
        with open_image(file) as picture:
            pixels = np.array(picture.convert("RGB"))
    except (Unreadable, OSError) as reason:
        raise UserError(f"frost picture {file} {reason}") from reason
    return torch.from_numpy(pixels).permute(2, 0, 1)
