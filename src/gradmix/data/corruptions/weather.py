"""Weather and daylight: snow, fog, brightness. (Frost needs pictures, and a file of its own.)"""

from __future__ import annotations

import torch
from torch import Tensor

from . import separable
from .draws import Draws
from .motion import along_line
from .plasma import plasma

_LUMA = (0.299, 0.587, 0.114)  # Rec. 601


def snow(
    images: Tensor, setting: tuple[float, float, float, float, int, float, float], draws: Draws
) -> Tensor:
    """b x + (1 − b) max(x, 1.5 grey(x) + 0.5) + s + s turned by 180°; images (N, C, H, W) in [0, 1].

    s: noise N(mean, deviation²), enlarged by ``zoom``, what is below ``threshold`` removed, then blurred
    along a line that falls within 45° of the vertical.
    """
    mean, deviation, zoom, threshold, radius, sigma, kept = setting
    height, width = images.shape[-2:]
    flakes = mean + deviation * draws.normal("flakes", 1, height, width)
    rows, columns = separable.zoom_matrix(height, zoom), separable.zoom_matrix(width, zoom)
    flakes = separable.apply(flakes, rows, columns)
    flakes = torch.where(flakes < threshold, 0.0, flakes).clamp(0, 1)
    flakes = along_line(flakes, radius, sigma, draws.between(-135, -45, "angle"))
    whitened = torch.maximum(images, 1.5 * grey(images) + 0.5)
    return kept * images + (1 - kept) * whitened + flakes + flakes.flip(2, 3)


def fog(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """(x + a · clouds) · m / (m + a), m the largest value of the image: the range stays as it was."""
    amount, decay = setting
    height, width = images.shape[-2:]
    size = 1 << (max(height, width) - 1).bit_length()
    clouds = plasma(draws, size, decay)[:, None, :height, :width]
    largest = images.amax((1, 2, 3), keepdim=True)
    return (images + amount * clouds) * largest / (largest + amount)


def brightness(images: Tensor, added: float, draws: Draws) -> Tensor:
    """The HSV value V = max(R, G, B) becomes min(V + added, 1); hue and saturation stay.

    With H and S fixed the colour is proportional to V, so no conversion is needed; black is grey of
    saturation 0.
    """
    value = images.amax(1, keepdim=True)
    brighter = (value + added).clamp(max=1)
    black = value == 0
    return torch.where(black, brighter, images * (brighter / torch.where(black, 1.0, value)))


def grey(images: Tensor) -> Tensor:
    """(N, 1, H, W): the luma of colour images, grey ones as they are."""
    if images.shape[1] == 1:
        return images
    luma = torch.tensor(_LUMA, dtype=images.dtype).view(1, 3, 1, 1)
    return (images * luma).sum(1, keepdim=True)
