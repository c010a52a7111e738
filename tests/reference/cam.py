"""Attribution maps pixel by pixel."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def layercam(activation: Tensor, gradient: Tensor) -> Tensor:
    n, channels, height, width = activation.shape
    out = torch.zeros(n, height, width, dtype=torch.float64)
    for i in range(n):
        for y in range(height):
            for x in range(width):
                total = 0.0
                for k in range(channels):
                    total += max(float(gradient[i, k, y, x]), 0.0) * float(activation[i, k, y, x])
                out[i, y, x] = max(total, 0.0)
    return out


def gradcam(activation: Tensor, gradient: Tensor) -> Tensor:
    n, channels, height, width = activation.shape
    out = torch.zeros(n, height, width, dtype=torch.float64)
    for i in range(n):
        alpha = []
        for k in range(channels):
            values = [float(gradient[i, k, y, x]) for y in range(height) for x in range(width)]
            alpha.append(sum(values) / len(values))
        for y in range(height):
            for x in range(width):
                out[i, y, x] = max(
                    sum(alpha[k] * float(activation[i, k, y, x]) for k in range(channels)), 0.0
                )
    return out


def upsample(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear, pixel centres at half integers, the border repeated: (h, w) to (H, W)."""
    out = torch.zeros(*size, dtype=torch.float64)
    for y in range(size[0]):
        for x in range(size[1]):
            out[y, x] = _sample(
                image, _source(y, size[0], image.shape[0]), _source(x, size[1], image.shape[1])
            )
    return out


def aggregate(maps: list[Tensor], size: tuple[int, int], normalize: str) -> Tensor:
    total = torch.zeros(len(maps[0]), *size, dtype=torch.float64)
    for layer in maps:
        ups = [upsample(image, size) for image in layer]
        for i, up in enumerate(ups):
            if normalize == "per_layer":
                largest = max(float(u.max()) for u in ups)
            elif normalize == "per_image":
                largest = float(up.max())
            else:
                largest = 1.0
            total[i] += up / largest if largest > 0 else up
    return total


def area(maps: Tensor, threshold: float) -> float:
    pixels = maps.flatten().tolist()
    return sum(1 for value in pixels if value > threshold) / len(pixels)


def _source(i: int, large: int, small: int) -> float:
    return min(max((i + 0.5) * small / large - 0.5, 0.0), small - 1.0)


def _sample(image: Tensor, y: float, x: float) -> float:
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, image.shape[0] - 1), min(left + 1, image.shape[1] - 1)
    dy, dx = y - top, x - left
    above = (1 - dx) * float(image[top, left]) + dx * float(image[top, right])
    below = (1 - dx) * float(image[bottom, left]) + dx * float(image[bottom, right])
    return (1 - dy) * above + dy * below
