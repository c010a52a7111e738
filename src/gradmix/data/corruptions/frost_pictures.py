"""Pictures of frost, from a folder or generated (and flagged as such)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import UserError
from ..decoding import Unreadable, open_image, refuse_damage
from ..roots import data_root
from .blur import blur_along_line
from .draws import Draws
from .plasma import plasma

_ENDINGS = {".png", ".jpg", ".jpeg"}
# The published sets are made from six pictures, but their random choice never reaches the last one.
_USED = 5
_GENERATED_SIZE = 256
_DIRECTIONS, _NEEDLE, _RARE = (
    6,
    9,
    2.3,
)  # needles: directions per picture, length, threshold in σ


@dataclass(frozen=True, eq=False)
class FrostPictures:
    """Color ``pictures``, each (3, h, w) uint8; ``generated`` if they are not photographs."""

    pictures: tuple[Tensor, ...]
    generated: bool = False
    origin: str = "generated"

    def enlarge(self, scale: float, height: int, width: int) -> FrostPictures:
        """Return the pictures at ``scale``, though no smaller than height × width; bilinear, as published."""
        scaled = []
        for picture in self.pictures:
            size = (max(height, int(picture.shape[1] * scale)), max(width, int(picture.shape[2] * scale)))
            small = F.interpolate(picture[None].double(), size, mode="bilinear", align_corners=False)
            scaled.append(small[0].round().to(torch.uint8))
        return FrostPictures(tuple(scaled), self.generated, self.origin)


def load_frost(folder: str | Path | None = None) -> FrostPictures:
    """Return pictures from ``folder``, else from ``frost`` in the data folder, else generated ones."""
    path = Path(folder) if folder is not None else data_root() / "frost"
    if folder is None and not path.is_dir():
        return generate_frost()
    if not path.is_dir():
        raise UserError(f"no folder of frost pictures at {path}")
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in _ENDINGS)[:_USED]
    if not files:
        raise UserError(f"no .png or .jpg frost picture in {path}")
    return FrostPictures(tuple(_read(file) for file in files), origin=str(path))


@lru_cache(maxsize=1)
def generate_frost() -> FrostPictures:
    """Return generated pictures that look like ice: needles in all directions on pale, bluish clouds."""
    size = _GENERATED_SIZE
    draws = Draws(0, "generated frost", 1, 0, _USED * _DIRECTIONS)
    seeds = (draws.normal("needles", 1, size, size) > _RARE).double()
    needles = blur_along_line(seeds, _NEEDLE, _NEEDLE, draws.between(0, 360, "direction"))
    needles = needles.view(_USED, _DIRECTIONS, size, size).sum(1)
    needles = (needles / needles.amax((1, 2), keepdim=True)).sqrt()
    clouds = plasma(Draws(0, "generated frost", 1, 0, _USED), size, 2.0)
    tint = torch.tensor([0.88, 0.94, 1.0], dtype=torch.float64).view(1, 3, 1, 1)
    light = (0.4 + 0.3 * clouds + 0.5 * needles).clamp(max=1)
    pixels = (light[:, None] * tint * 255).round().to(torch.uint8)
    return FrostPictures(tuple(pixels), generated=True)


def _read(file: Path) -> Tensor:
    try:
        with open_image(file) as picture, refuse_damage("is damaged"):
            pixels = np.array(picture.convert("RGB"))
    except Unreadable as reason:
        raise UserError(f"frost picture {file} {reason}") from reason
    return torch.from_numpy(pixels).permute(2, 0, 1)
