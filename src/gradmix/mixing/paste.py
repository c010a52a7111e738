"""Put a patch of one image into another, for a whole batch at once."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import choose
from .boxes import Boxes

PATCHES = ("resize", "crop")


def paste(images: Tensor, partners: Tensor, boxes: Boxes, patch: str = "resize") -> Tensor:
    """Return images (N, C, H, W) with each box filled from its partner.

    ``"resize"``: the whole partner, shrunk bilinearly to the box (the paper; same pixels as
    ``F.interpolate(partner, (h, w), mode="bilinear")``). ``"crop"``: the partner's own pixels of that
    place (CutMix as first published).
    """
    choose("patch", patch, PATCHES)
    size = (images.shape[2], images.shape[3])
    filling = partners if patch == "crop" else _shrink_into(partners, boxes, size)
    return torch.where(boxes.mask(size)[:, None], filling, images)


def _shrink_into(partners: Tensor, boxes: Boxes, size: tuple[int, int]) -> Tensor:
    """Sample partner i so that its whole extent falls on box i; what lies outside the box is not used."""
    y, x = boxes.offsets(size)
    # Pixel centers: box pixel j covers partner coordinate (j + ½)·H/h − ½; grid_sample wants it in [−1, 1].
    grid_y = (2 * y + 1) / boxes.height[:, None] - 1
    grid_x = (2 * x + 1) / boxes.width[:, None] - 1
    n, (rows, columns) = len(y), size
    across, down = grid_x[:, None, :].expand(n, rows, columns), grid_y[:, :, None].expand(n, rows, columns)
    grid = torch.stack([across, down], dim=-1)
    return torch.nn.functional.grid_sample(
        partners, grid.to(partners.dtype), mode="bilinear", padding_mode="border", align_corners=False
    )
