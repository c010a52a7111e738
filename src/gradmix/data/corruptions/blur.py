"""Blur by the lens and by moving towards the subject: defocus and zoom."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from . import separable
from .draws import Draws


def defocus_blur(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Convolution of (N, C, H, W) with a disk; the border is mirrored, d c b | a b c d."""
    kernel = disk_kernel(*setting)
    height, width = images.shape[-2:]
    reach = len(kernel) // 2
    padded = images[:, :, _mirrored(height, reach)][:, :, :, _mirrored(width, reach)]
    # By Fourier transform: disks have up to 25 × 25 taps, and double precision has no quick convolution.
    size = padded.shape[-2:]
    product = torch.fft.rfft2(padded) * torch.fft.rfft2(kernel, s=size)
    around: Tensor = torch.fft.irfft2(product, s=size)
    return around[..., 2 * reach :, 2 * reach :]


def disk_kernel(radius: float, sigma: float) -> Tensor:
    """(2r + 1, 2r + 1): the pixels within ``radius``, the stairs at the edge smoothed by a small Gaussian.

    The Gaussian has 3 × 3 taps (5 × 5 if the radius is above 8), and the whole sums to 1.
    """
    soften = 1 if radius <= 8 else 2
    reach = math.floor(radius) + soften
    place = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (place[:, None] ** 2 + place**2 <= radius**2).double()
    tap = torch.arange(-soften, soften + 1, dtype=torch.float64)
    gaussian = torch.exp(-(tap**2) / (2 * sigma**2))
    gaussian /= gaussian.sum()
    smooth = F.conv2d(
        (disk / disk.sum())[None, None], torch.outer(gaussian, gaussian)[None, None], padding=soften
    )
    return smooth[0, 0]


def zoom_blur(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Mean of the image and of its copies enlarged by 1, 1 + step, 1 + 2 step … (before ``end``)."""
    end, step = setting
    factors = np.arange(1, end, step).tolist()
    height, width = images.shape[-2:]
    total = images.clone()
    for factor in factors:
        rows, columns = separable.zoom_matrix(height, factor), separable.zoom_matrix(width, factor)
        total += separable.apply(images, rows, columns)
    return total / (len(factors) + 1)


def _mirrored(size: int, reach: int) -> Tensor:
    """(size + 2 reach,) pixel numbers of a side continued on both ends as d c b | a b c d | c b a.

    >>> _mirrored(3, 4).tolist()
    [0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2]
    """
    period = max(2 * (size - 1), 1)
    place = torch.arange(-reach, size + reach).remainder(period)
    return torch.minimum(place, period - place) if size > 1 else torch.zeros_like(place)
