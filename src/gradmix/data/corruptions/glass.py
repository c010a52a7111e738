"""Frosted glass: every pixel is replaced by one near it, between two small Gaussian blurs."""

from __future__ import annotations

import torch
from torch import Tensor

from .draws import Draws
from .separable import gaussian_blur


def glass_blur(images: Tensor, setting: tuple[float, int, int], draws: Draws) -> Tensor:
    """Blur by σ, ``rounds`` of the shuffle with its ``reach``, blur by σ; images (N, C, H, W) in [0, 1]."""
    sigma, reach, rounds = setting
    n, channels, height, width = images.shape
    flat = gaussian_blur(images, sigma).reshape(n, channels, height * width)
    for number in range(rounds):
        chance = draws.uniform(f"shift {number}", 2, height * width)
        shift = (chance * 2 * reach).long() - reach  # −reach … reach − 1, as published
        source = shuffled(shift[:, 0], shift[:, 1], reach, height, width)
        flat = flat.gather(2, source[:, None].expand(-1, channels, -1))
    return gaussian_blur(flat.view(images.shape), sigma)


def shuffled(down: Tensor, right: Tensor, reach: int, height: int, width: int) -> Tensor:
    """(N, HW): the pixel whose value each one ends up with, given its shift (N, HW) down and right.

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
