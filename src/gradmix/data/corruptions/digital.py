"""The digital corruptions: contrast, elastic transform, pixelate, JPEG."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ...machine import count_cores
from . import separable
from .draws import Draws
from .separable import gaussian_blur

_TRUNCATE = 3.0  # the Gaussian of the ripples ends after three σ


def contrast(images: Tensor, factor: float, draws: Draws) -> Tensor:
    """Return m + factor · (x − m), m the mean of each channel of each image (N, C, H, W)."""
    mean = images.mean((2, 3), keepdim=True)
    return mean + factor * (images - mean)


def pixelate(images: Tensor, scale: float, draws: Draws) -> Tensor:
    """Shrink to ⌊scale · side⌋ by means over boxes, and enlarge each pixel to a block."""
    height, width = images.shape[-2:]
    low, narrow = max(1, int(height * scale)), max(1, int(width * scale))
    rows = separable.box_matrix(low, height) @ separable.box_matrix(height, low)
    columns = separable.box_matrix(narrow, width) @ separable.box_matrix(width, narrow)
    return separable.apply(images, rows, columns)


def jpeg_compression(images: Tensor, quality: int, draws: Draws) -> Tensor:
    """Encode as JPEG of this ``quality`` and decode again; (N, C, H, W) in [0, 1].

    The one step that goes image by image: a codec has no batch. Pillow lets go of the interpreter lock
    while it codes, so threads do help.
    """
    pixels = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()

    def encode_and_decode(i: int) -> None:
        picture = Image.fromarray(pixels[i] if pixels.shape[3] == 3 else pixels[i, :, :, 0])
        coded = io.BytesIO()
        picture.save(coded, "JPEG", quality=quality)
        with Image.open(coded) as decoded:
            pixels[i] = np.asarray(decoded).reshape(pixels[i].shape)

    with ThreadPoolExecutor(min(8, count_cores())) as pool:
        list(pool.map(encode_and_decode, range(len(pixels)), chunksize=64))
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).to(images.dtype) / 255


def elastic_transform(images: Tensor, setting: tuple[float, float, float], draws: Draws) -> Tensor:
    """Apply a random affine map, then a smooth random displacement; images (N, C, H, W).

    Three points around the middle are moved by U(−shift, shift) each way, which fixes the affine map.
    The displacement is U(−1, 1) noise blurred by a Gaussian, times ``strength``. All three settings are
    shares of the shorter side.
    """
    height, width = images.shape[-2:]
    side = min(height, width)
    strength, sigma, shift = (share * side for share in setting)
    moved = draws.between(-shift, shift, "corners", 3, 2)
    images = sample(images, affine_positions(moved, height, width), mirror_at_centers=True)
    if strength == 0:
        return images
    noise = draws.between(-1, 1, "ripples", 2, height, width)
    ripples = strength * gaussian_blur(noise, sigma, truncate=_TRUNCATE, border="reflect")
    positions = pixel_grid(height, width) + ripples.permute(0, 2, 3, 1)
    return sample(images, positions, mirror_at_centers=False)


def affine_positions(moved: Tensor, height: int, width: int) -> Tensor:
    """Return (N, H, W, 2): source (x, y) of each pixel if three points move by ``moved`` (N, 3, 2).

    The points are the middle ± a third of the side; the map takes them there, so pixels look back along
    its inverse: the map from the moved points to the original ones.
    """
    middle = torch.tensor([width // 2, height // 2], dtype=torch.float64)
    third = max(1, min(height, width) // 3)
    corner = torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64)
    points = middle + third * corner  # (3, 2)
    homogeneous = torch.cat([points + moved, torch.ones(len(moved), 3, 1, dtype=torch.float64)], dim=2)
    # Rows (x', y', 1) @ M = (x, y) for the three points; M is (3, 2).
    back = torch.linalg.solve(homogeneous, points.expand(len(moved), -1, -1))
    grid = pixel_grid(height, width)
    positions: Tensor = grid @ back[:, None, :2] + back[:, None, None, 2]
    return positions


def pixel_grid(height: int, width: int) -> Tensor:
    """Return (H, W, 2): the (x, y) of each pixel."""
    y, x = torch.meshgrid(
        torch.arange(height, dtype=torch.float64), torch.arange(width, dtype=torch.float64), indexing="ij"
    )
    return torch.stack([x, y], dim=2)


def sample(images: Tensor, positions: Tensor, *, mirror_at_centers: bool) -> Tensor:
    """Return bilinear values of (N, C, H, W) at ``positions`` (N, H, W, 2) in pixels.

    Outside, the image is mirrored at the centres of the border pixels (d c b | a b c d) or at their outer
    edges (d c b a | a b c d): the affine map and the ripples of the published sets differ in this.
    """
    size = torch.tensor([images.shape[3], images.shape[2]], dtype=torch.float64)
    # grid_sample counts from −1 to 1: between the centres of the outer pixels, or between their edges.
    span, origin = ((size - 1).clamp(min=1), 0.0) if mirror_at_centers else (size, 0.5)
    scaled = 2 * (positions + origin) / span - 1
    return F.grid_sample(
        images, scaled, mode="bilinear", padding_mode="reflection", align_corners=mirror_at_centers
    )
