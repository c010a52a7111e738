"""Augmentation of one image at a time, one operation after the other."""

from __future__ import annotations

import colorsys
import math

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)


def crop(image: Tensor, matrix: Tensor, size: int) -> Tensor:
    """(C, H, W) to (C, size, size): where each output pixel's centre falls, interpolated between four pixels.

    Coordinates run from −1 at the left (top) edge of the image to 1 at the right (bottom) edge, edges of
    pixels, not their centres; outside, the border pixel is repeated.
    """
    channels, height, width = image.shape
    out = torch.zeros(channels, size, size)
    for row in range(size):
        for column in range(size):
            u, v = (2 * column + 1) / size - 1, (2 * row + 1) / size - 1
            x = float(matrix[0, 0]) * u + float(matrix[0, 1]) * v + float(matrix[0, 2])
            y = float(matrix[1, 0]) * u + float(matrix[1, 1]) * v + float(matrix[1, 2])
            out[:, row, column] = _between(image, (y + 1) * height / 2 - 0.5, (x + 1) * width / 2 - 0.5)
    return out


def colour_jitter(
    image: Tensor, brightness: float, contrast: float, saturation: float = 1.0, hue: float = 0.0
) -> Tensor:
    """(C, H, W) in [0, 1]: brightness, hue, saturation (0 = grey), contrast, and one clamp at the end."""
    image = image * brightness
    if len(image) == 3:
        image = turn_hue(image, hue)
        image = saturation * image + (1 - saturation) * grey(image)
        mean = grey(image).mean()
    else:
        mean = image.mean()
    return (contrast * (image - mean) + mean).clamp(0, 1)


def grey(image: Tensor) -> Tensor:
    """(3, H, W) to (1, H, W), Rec. 601."""
    return sum(weight * image[c] for c, weight in enumerate(LUMA))[None]


def turn_hue(image: Tensor, turns: float) -> Tensor:
    """Rotate the (I, Q) plane of YIQ pixel by pixel, Y untouched; ``turns`` of a full circle."""
    i = 0.596 * image[0] - 0.274 * image[1] - 0.322 * image[2]
    q = 0.211 * image[0] - 0.523 * image[1] + 0.312 * image[2]
    y = grey(image)[0]
    angle = 2 * math.pi * turns
    new_i, new_q = math.cos(angle) * i - math.sin(angle) * q, math.sin(angle) * i + math.cos(angle) * q
    to_yiq = torch.tensor([LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)], dtype=torch.float64)
    flat = torch.stack([y, new_i, new_q]).double().flatten(1)
    return torch.linalg.solve(to_yiq, flat).float().view(image.shape)


def hue_of(pixel: tuple[float, float, float]) -> float:
    """HSV hue, in turns."""
    return colorsys.rgb_to_hsv(*pixel)[0]


def _between(image: Tensor, y: float, x: float) -> Tensor:
    height, width = image.shape[1:]
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    dy, dx = y - top, x - left
    above = (1 - dx) * image[:, top, left] + dx * image[:, top, right]
    below = (1 - dx) * image[:, bottom, left] + dx * image[:, bottom, right]
    return (1 - dy) * above + dy * below
