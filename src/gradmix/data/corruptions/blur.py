"""The four blurs: defocus, glass, motion, zoom."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from . import separable
from .draws import Draws
from .separable import gaussian_blur

_MIN_WEIGHT = 1e-7  # a tap of less weight cannot change a pixel of 256 levels


def defocus_blur(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Convolve (N, C, H, W) with a disk; the border is mirrored, d c b | a b c d."""
    kernel = disk_kernel(*setting)
    height, width = images.shape[-2:]
    reach = len(kernel) // 2
    padded = images[:, :, _mirror_indices(height, reach)][:, :, :, _mirror_indices(width, reach)]
    # By Fourier transform: disks have up to 25 × 25 taps, and double precision has no quick convolution.
    size = padded.shape[-2:]
    product = torch.fft.rfft2(padded) * torch.fft.rfft2(kernel, s=size)
    around: Tensor = torch.fft.irfft2(product, s=size)
    return around[..., 2 * reach :, 2 * reach :]


def disk_kernel(radius: float, sigma: float) -> Tensor:
    """Return (2r + 1, 2r + 1): the pixels within ``radius``, the edge smoothed by a Gaussian.

    The Gaussian has 3 × 3 taps (5 × 5 if the radius is above 8), and the whole sums to 1.
    """
    soften = 1 if radius <= 8 else 2
    reach = math.floor(radius) + soften
    offset = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (offset[:, None] ** 2 + offset**2 <= radius**2).double()
    tap = torch.arange(-soften, soften + 1, dtype=torch.float64)
    gaussian = torch.exp(-(tap**2) / (2 * sigma**2))
    gaussian /= gaussian.sum()
    smooth = F.conv2d(
        (disk / disk.sum())[None, None], torch.outer(gaussian, gaussian)[None, None], padding=soften
    )
    return smooth[0, 0]


def glass_blur(images: Tensor, setting: tuple[float, int, int], draws: Draws) -> Tensor:
    """Blur by σ, ``rounds`` of the shuffle with its ``reach``, blur by σ; images (N, C, H, W) in [0, 1]."""
    sigma, reach, rounds = setting
    n, channels, height, width = images.shape
    flat = gaussian_blur(images, sigma).reshape(n, channels, height * width)
    for number in range(rounds):
        chance = draws.uniform(f"shift {number}", 2, height * width)
        shift = (chance * 2 * reach).long() - reach  # −reach … reach − 1, as published
        source = shuffle_sources(shift[:, 0], shift[:, 1], reach, height, width)
        flat = flat.gather(2, source[:, None].expand(-1, channels, -1))
    return gaussian_blur(flat.view(images.shape), sigma)


def shuffle_sources(down: Tensor, right: Tensor, reach: int, height: int, width: int) -> Tensor:
    """Return (N, HW): the pixel whose value each one ends up with, given its shift (N, HW) down and right.

    By definition a scan from the last pixel to the first, each taking the present value of the pixel at
    its shift: the new value, if the scan has been there, else the old. (The published code means to swap
    the two, but its assignment of array views copies one way; its data are what counts.) The scan is a
    chain of references, so it is resolved by following all of them at once, doubling the distance in
    each round, rather than pixel by pixel.
    """
    pixels = height * width
    pixel = torch.arange(pixels)
    row, column = pixel // width, pixel % width
    moves = (row > reach) & (row <= height - reach) & (column > reach) & (column <= width - reach)
    target = torch.where(moves, pixel + down * width + right, pixel)
    # Entries 0 … HW − 1 stand for new values, HW … 2 HW − 1 for old ones, which refer to themselves.
    scanned = (target > pixel) & moves
    refers = torch.where(scanned, target, target + pixels)
    refers = torch.cat([refers, (pixel + pixels).expand(len(refers), -1)], dim=1)
    while bool((refers < pixels).any()):
        refers = refers.gather(1, refers)
    return refers[:, :pixels] - pixels


def motion_blur(images: Tensor, setting: tuple[int, float], draws: Draws) -> Tensor:
    """Blur each image along its own random direction, −45° … 45° from the horizontal."""
    radius, sigma = setting
    return blur_along_line(images, radius, sigma, draws.between(-45, 45, "angle"))


def blur_along_line(images: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Return Σ_i k_i x(p + round(i (cos θ, sin θ))), i = 0 … 2 radius; images (N, C, H, W), θ (N,).

    k_i ∝ exp(−i² / 2σ²): a trail to one side, as ImageMagick draws it (the published sets use it). The
    border pixel is repeated outside.
    """
    n, channels, height, width = images.shape
    step = torch.arange(2 * math.ceil(radius) + 1, dtype=torch.float64)
    weight = torch.exp(-(step**2) / (2 * sigma**2))
    weight /= weight.sum()
    angle = torch.deg2rad(degrees.double())[:, None]
    right = torch.ceil(step * angle.cos() - 0.5).long()  # (N, taps)
    down = torch.ceil(step * angle.sin() - 0.5).long()
    row, column = torch.arange(height), torch.arange(width)
    flat = images.reshape(n, channels, height * width)
    total = torch.zeros_like(flat)
    for tap in range(int((weight > _MIN_WEIGHT).sum())):
        rows = (row + down[:, tap, None]).clamp_(0, height - 1)
        columns = (column + right[:, tap, None]).clamp_(0, width - 1)
        index = (rows[:, :, None] * width + columns[:, None, :]).view(n, 1, height * width)
        total.add_(flat.gather(2, index.expand(-1, channels, -1)), alpha=float(weight[tap]))
    return total.view(images.shape)


def zoom_blur(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Average the image and its copies enlarged by 1, 1 + step, 1 + 2 step … (before ``end``)."""
    end, step = setting
    factors = np.arange(1, end, step).tolist()
    height, width = images.shape[-2:]
    total = images.clone()
    for factor in factors:
        rows, columns = separable.zoom_matrix(height, factor), separable.zoom_matrix(width, factor)
        total += separable.apply(images, rows, columns)
    return total / (len(factors) + 1)


def _mirror_indices(size: int, reach: int) -> Tensor:
    """Return (size + 2 reach,) pixel indices of a side continued on both ends as d c b | a b c d | c b a.

    >>> _mirror_indices(3, 4).tolist()
    [0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2]
    """
    period = max(2 * (size - 1), 1)
    index = torch.arange(-reach, size + reach).remainder(period)
    return torch.minimum(index, period - index) if size > 1 else torch.zeros_like(index)
