"""Elastic transform: an image on rubber, pulled at three points and rippled."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .draws import Draws
from .separable import gaussian_blur

_TRUNCATE = 3.0  # the ripples' Gaussian ends after three σ


def elastic_transform(images: Tensor, setting: tuple[float, float, float], draws: Draws) -> Tensor:
    """A random affine map, then a smooth random displacement; images (N, C, H, W).

    Three points around the middle are moved by U(−shift, shift) each way, which fixes the affine map.
    The displacement is U(−1, 1) noise blurred by a Gaussian, times ``strength``. All three settings are
    shares of the shorter side.
    """
    height, width = images.shape[-2:]
    side = min(height, width)
    strength, sigma, shift = (share * side for share in setting)
    moved = draws.between(-shift, shift, "corners", 3, 2)
    images = sample(images, affine_places(moved, height, width), mirror_at_centres=True)
    if strength == 0:
        return images
    noise = draws.between(-1, 1, "ripples", 2, height, width)
    ripples = strength * gaussian_blur(noise, sigma, truncate=_TRUNCATE, border="reflect")
    places = pixel_grid(height, width) + ripples.permute(0, 2, 3, 1)
    return sample(images, places, mirror_at_centres=False)


def affine_places(moved: Tensor, height: int, width: int) -> Tensor:
    """(N, H, W, 2): where (x, y) each pixel looks, if three points are shifted by ``moved`` (N, 3, 2).

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
    places: Tensor = grid @ back[:, None, :2] + back[:, None, None, 2]
    return places


def pixel_grid(height: int, width: int) -> Tensor:
    """(H, W, 2): the (x, y) of each pixel."""
    y, x = torch.meshgrid(
        torch.arange(height, dtype=torch.float64), torch.arange(width, dtype=torch.float64), indexing="ij"
    )
    return torch.stack([x, y], dim=2)


def sample(images: Tensor, places: Tensor, *, mirror_at_centres: bool) -> Tensor:
    """Bilinear values of (N, C, H, W) at ``places`` (N, H, W, 2) in pixels.

    Outside, the image is mirrored at the centres of the border pixels (d c b | a b c d) or at their outer
    edges (d c b a | a b c d): the affine map and the ripples of the published sets differ in this.
    """
    size = torch.tensor([images.shape[3], images.shape[2]], dtype=torch.float64)
    # grid_sample counts from −1 to 1: between the centres of the outer pixels, or between their edges.
    span, origin = ((size - 1).clamp(min=1), 0.0) if mirror_at_centres else (size, 0.5)
    scaled = 2 * (places + origin) / span - 1
    return F.grid_sample(
        images, scaled, mode="bilinear", padding_mode="reflection", align_corners=mirror_at_centres
    )
