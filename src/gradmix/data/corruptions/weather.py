"""Weather and daylight: snow, frost, fog, brightness."""

from __future__ import annotations

import torch
from torch import Tensor

from . import separable
from .blur import blur_along_line
from .draws import Draws
from .frost_pictures import FrostPictures, load_frost
from .plasma import plasma

_LUMA = (0.299, 0.587, 0.114)  # Rec. 601


def snow(
    images: Tensor, setting: tuple[float, float, float, float, int, float, float], draws: Draws
) -> Tensor:
    """Return b x + (1 − b) max(x, 1.5 luma(x) + 0.5) + s + s turned by 180°; images (N, C, H, W) in [0, 1].

    s: noise N(mean, deviation²), enlarged by ``zoom``, what is below ``threshold`` removed, then blurred
    along a line that falls within 45° of the vertical.
    """
    mean, deviation, zoom, threshold, radius, sigma, kept = setting
    height, width = images.shape[-2:]
    flakes = mean + deviation * draws.normal("flakes", 1, height, width)
    rows, columns = separable.zoom_matrix(height, zoom), separable.zoom_matrix(width, zoom)
    flakes = separable.apply(flakes, rows, columns)
    flakes = torch.where(flakes < threshold, 0.0, flakes).clamp(0, 1)
    flakes = blur_along_line(flakes, radius, sigma, draws.between(-135, -45, "angle"))
    whitened = torch.maximum(images, 1.5 * to_luma(images) + 0.5)
    return kept * images + (1 - kept) * whitened + flakes + flakes.flip(2, 3)


def frost(
    images: Tensor,
    setting: tuple[float, float, float],
    draws: Draws,
    pictures: FrostPictures | None = None,
) -> Tensor:
    """Return a x + b f, f a random cut-out of a random picture; images (N, C, H, W) in [0, 1].

    Pictures differ in size, so they lie one after another in one buffer, from which every image gathers
    its cut-out. ``pictures`` None stands for those of :func:`load_frost`.
    """
    of_image, of_frost, scale = setting
    channels, height, width = images.shape[1:]
    ready = (pictures or load_frost()).enlarge(scale, height, width).pictures
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
    index = first[:, None, None] + across  # (N, H, W)
    overlay = pixels[:, index].transpose(0, 1).to(images.dtype) / 255
    return of_image * images + of_frost * overlay


def fog(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Return (x + a · clouds) · m / (m + a), m the largest value of the image: the range stays as it was."""
    amount, decay = setting
    height, width = images.shape[-2:]
    size = 1 << (max(height, width) - 1).bit_length()
    clouds = plasma(draws, size, decay)[:, None, :height, :width]
    largest = images.amax((1, 2, 3), keepdim=True)
    return (images + amount * clouds) * largest / (largest + amount)


def brightness(images: Tensor, added: float, draws: Draws) -> Tensor:
    """Set the HSV value V = max(R, G, B) to min(V + added, 1); hue and saturation stay.

    With H and S fixed the colour is proportional to V, so no conversion is needed; black is grey of
    saturation 0.
    """
    value = images.amax(1, keepdim=True)
    brighter = (value + added).clamp(max=1)
    black = value == 0
    return torch.where(black, brighter, images * (brighter / torch.where(black, 1.0, value)))


def to_luma(images: Tensor) -> Tensor:
    """Return (N, 1, H, W): the luma of color images, gray ones as they are."""
    if images.shape[1] == 1:
        return images
    luma = torch.tensor(_LUMA, dtype=images.dtype).view(1, 3, 1, 1)
    return (images * luma).sum(1, keepdim=True)
