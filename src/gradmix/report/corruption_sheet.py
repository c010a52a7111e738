"""Draw one image under every corruption at every severity."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data.corruptions import CORRUPTIONS, SEVERITIES, FrostPictures, corrupt
from ..progress import progress
from .pictures import contact_sheet

_KINDS_PER_ROW = 3  # kinds in one row of the sheet: 3 × 6 pictures, five rows


def draw_corruption_sheet(image: Tensor, frost: FrostPictures, seed: int = 0, scale: int = 1) -> bytes:
    """Return a PNG of uint8 ``image`` (C, H, W): per corruption the clean image, then severities 1 to 5."""
    kinds = list(CORRUPTIONS)
    rows = -(-len(kinds) // _KINDS_PER_ROW)
    pictures, captions = [], []
    with progress("corrupting", len(kinds)) as advance:
        for row in range(rows):
            for kind in kinds[row::rows]:
                pictures.append(image[None])
                captions.append(kind.replace("_", " "))
                for severity in SEVERITIES:
                    pictures.append(corrupt(image[None], kind, severity, seed, frost))
                    captions.append(str(severity))
                advance(note=kind)
    return contact_sheet(torch.cat(pictures), _KINDS_PER_ROW * (1 + len(SEVERITIES)), scale, captions)
