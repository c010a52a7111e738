"""Corruptions of one image at a time, as plainly as they can be written; images (H, W, C) in [0, 1]."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Array = npt.NDArray[np.float64]


def defocus(image: Array, radius: float, sigma: float) -> Array:
    side = 12
    y, x = np.mgrid[-side : side + 1, -side : side + 1]
    disk = (x**2 + y**2 <= radius**2).astype(float)
    disk /= disk.sum()
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    gaussian = np.exp(-(taps**2) / (2 * sigma**2))
    gaussian /= gaussian.sum()
    kernel = ndimage.convolve(disk, np.outer(gaussian, gaussian), mode="constant")
    return np.stack(
        [ndimage.convolve(channel, kernel, mode="mirror") for channel in np.moveaxis(image, 2, 0)], 2
    )


def contrast(image: Array, factor: float) -> Array:
    out = np.empty_like(image)
    for c in range(image.shape[2]):
        mean = image[:, :, c].mean()
        out[:, :, c] = (image[:, :, c] - mean) * factor + mean
    return out


def brightness(image: Array, added: float) -> Array:
    out = np.empty_like(image)
    for row, column in np.ndindex(*image.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*image[row, column])
        out[row, column] = colorsys.hsv_to_rgb(hue, saturation, min(value + added, 1))
    return out


def motion(image: Array, radius: int, sigma: float, degrees: float) -> Array:
    height, width = image.shape[:2]
    weights = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(2 * radius + 1)]
    angle = math.radians(degrees)
    out = np.zeros_like(image)
    for i, weight in enumerate(weights):
        right, down = math.ceil(i * math.cos(angle) - 0.5), math.ceil(i * math.sin(angle) - 0.5)
        for row, column in np.ndindex(height, width):
            seen = image[min(max(row + down, 0), height - 1), min(max(column + right, 0), width - 1)]
            out[row, column] += weight / sum(weights) * seen
    return out


def zoomed(image: Array, factor: float) -> Array:
    side = image.shape[0]
    kept = math.ceil(side / factor)
    top = (side - kept) // 2
    large = ndimage.zoom(image[top : top + kept, top : top + kept], (factor, factor, 1), order=1)
    cut = (large.shape[0] - side) // 2
    return large[cut : cut + side, cut : cut + side]


def zoom_blur(image: Array, factors: Sequence[float]) -> Array:
    return (image + sum(zoomed(image, factor) for factor in factors)) / (len(factors) + 1)


def glass_sources(
    down: npt.NDArray[np.int64], right: npt.NDArray[np.int64], reach: int
) -> npt.NDArray[np.int64]:
    """Where each pixel's value comes from, by the scan itself; shifts (H, W)."""
    height, width = down.shape
    source = np.arange(height * width).reshape(height, width)
    for row in range(height - reach, reach, -1):
        for column in range(width - reach, reach, -1):
            source[row, column] = source[row + down[row, column], column + right[row, column]]
    return source


def affine(image: Array, start: Array, end: Array) -> Array:
    """The map that takes the points ``start`` (3, 2) of (x, y) to ``end``, looked up backwards."""
    unknowns, wanted = [], []
    for (x, y), (moved_x, moved_y) in zip(start, end, strict=True):
        unknowns += [[x, y, 1, 0, 0, 0], [0, 0, 0, x, y, 1]]
        wanted += [moved_x, moved_y]
    forward = np.append(np.linalg.solve(np.array(unknowns), np.array(wanted)), [0, 0, 1]).reshape(3, 3)
    back = np.linalg.inv(forward)
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    x = back[0, 0] * columns + back[0, 1] * rows + back[0, 2]
    y = back[1, 0] * columns + back[1, 1] * rows + back[1, 2]
    return _looked_up(image, y, x, "mirror")


def rippled(image: Array, noise: Array, strength: float, sigma: float) -> Array:
    """``noise`` (2, H, W): to the right, and down."""
    right, down = (
        strength * ndimage.gaussian_filter(part, sigma, mode="reflect", truncate=3.0) for part in noise
    )
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    return _looked_up(image, rows + down, columns + right, "reflect")


def _looked_up(image: Array, y: Array, x: Array, border: str) -> Array:
    channels = np.moveaxis(image, 2, 0)
    return np.stack([ndimage.map_coordinates(c, [y, x], order=1, mode=border) for c in channels], 2)


def plasma(chance: Array, decay: float) -> Array:
    """Midpoint displacement on a torus, point by point, with the random number of each point given."""
    size = len(chance)
    field = np.zeros((size, size))
    step, rough = size, 100.0
    while step >= 2:
        half = step // 2
        squares = [(r, c) for r in range(half, size, step) for c in range(half, size, step)]
        edges = [(r, c) for r in range(0, size, half) for c in range(0, size, half) if (r + c) // half % 2]
        for points, offsets in (
            (squares, [(-half, -half), (-half, half), (half, -half), (half, half)]),
            (edges, [(-half, 0), (half, 0), (0, -half), (0, half)]),
        ):
            for r, c in points:
                mean = sum(field[(r + dr) % size, (c + dc) % size] for dr, dc in offsets) / 4
                field[r, c] = mean + rough**2 * chance[r, c]
        rough /= decay
        step = half
    field -= field.min()
    return field / field.max()
