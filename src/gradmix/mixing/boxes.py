"""Where the patch goes: boxes of integer pixels that lie inside the image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ROUNDING = 1e-5  # of the maximum of a map


@dataclass(frozen=True)
class Boxes:
    """One box per image: pixels top ≤ y < top + height, left ≤ x < left + width. Each field (N,) int64."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor

    def rows(self, own: slice) -> Boxes:
        """Return the boxes of some of the images."""
        return Boxes(self.top[own], self.left[own], self.height[own], self.width[own])

    def mask(self, size: tuple[int, int]) -> Tensor:
        """Return (N, H, W) bool, true inside of the box."""
        y, x = self.offsets(size)
        inside_y = (y >= 0) & (y < self.height[:, None])
        inside_x = (x >= 0) & (x < self.width[:, None])
        return inside_y[:, :, None] & inside_x[:, None, :]

    def share(self, size: tuple[int, int]) -> Tensor:
        """Return the true area of the box over that of the image, (N,) float."""
        return (self.height * self.width).to(torch.float32) / (size[0] * size[1])

    def offsets(self, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Return each image row's distance from the box's top (N, H), each column's from its left (N, W)."""
        device = self.top.device
        y = torch.arange(size[0], device=device) - self.top[:, None]
        x = torch.arange(size[1], device=device) - self.left[:, None]
        return y, x


def sides(ratio: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return side lengths in pixels for a ratio of side lengths γ (N,): at least 1, at most the image."""
    height = (ratio * size[0]).round().clamp(1, size[0]).long()
    width = (ratio * size[1]).round().clamp(1, size[1]).long()
    return height, width


def boxes_at_peak(maps: Tensor, ratio: Tensor) -> Boxes:
    """Return boxes centered on the arg max of each map (N, H, W), then moved to lie inside the image.

    Of pixels that equal the maximum but for rounding the first is taken: a small map that was enlarged has
    plateaus, and where on them the patch goes must not depend on the last bit.
    """
    size = (maps.shape[1], maps.shape[2])
    height, width = sides(ratio, size)
    peak = _first_of_largest(maps.flatten(1))
    top = peak // size[1] - height // 2
    left = peak % size[1] - width // 2
    return _move_inside(top, left, height, width, size)


def boxes_at_window(maps: Tensor, ratio: Tensor) -> Boxes:
    """Return the boxes that hold the largest sum of each map (N, H, W).

    Again the first of those that are equal but for rounding: where all that is activated fits into a box,
    it fits in many places.
    """
    n, rows, columns = maps.shape
    size = (rows, columns)
    height, width = sides(ratio, size)
    # Integral image with a leading row and column of zeros; float64, for it is differences of large sums.
    integral = torch.zeros(n, rows + 1, columns + 1, dtype=torch.float64, device=maps.device)
    integral[:, 1:, 1:] = maps.double().cumsum(1).cumsum(2)
    y = torch.arange(rows, device=maps.device).expand(n, -1)
    x = torch.arange(columns, device=maps.device).expand(n, -1)
    bottom = (y + height[:, None]).clamp(max=rows)
    right = (x + width[:, None]).clamp(max=columns)

    def corner(ys: Tensor, xs: Tensor) -> Tensor:
        picked = integral.gather(1, ys[:, :, None].expand(-1, -1, columns + 1))
        return picked.gather(2, xs[:, None, :].expand(-1, rows, -1))

    sums = corner(bottom, right) - corner(y, right) - corner(bottom, x) + corner(y, x)
    fits = (y + height[:, None] <= rows)[:, :, None] & (x + width[:, None] <= columns)[:, None, :]
    best = _first_of_largest(sums.masked_fill(~fits, float("-inf")).flatten(1))
    return Boxes(best // columns, best % columns, height, width)


def boxes_at_spot(spot: Tensor, ratio: Tensor, size: tuple[int, int]) -> Boxes:
    """Return boxes at ``spot`` (N, 2) in [0, 1) of the positions inside the image, along height and width."""
    height, width = sides(ratio, size)
    top = (spot[:, 0] * (size[0] - height + 1)).long().minimum(size[0] - height)
    left = (spot[:, 1] * (size[1] - width + 1)).long().minimum(size[1] - width)
    return Boxes(top, left, height, width)


def random_boxes(n: int, ratio: Tensor, size: tuple[int, int], generator: torch.Generator) -> Boxes:
    """Return boxes anywhere inside the image, every position equally likely."""
    return boxes_at_spot(torch.rand(2, n, generator=generator).T.to(ratio.device), ratio, size)


def _first_of_largest(values: Tensor) -> Tensor:
    """Return the first index (N,) whose value equals the maximum of its row (N, M) but for rounding."""
    largest = values.amax(1, keepdim=True)
    return (values >= largest - _ROUNDING * largest.abs()).to(torch.uint8).argmax(1)


def _move_inside(top: Tensor, left: Tensor, height: Tensor, width: Tensor, size: tuple[int, int]) -> Boxes:
    zero = torch.zeros_like(top)
    return Boxes(top.clamp(zero, size[0] - height), left.clamp(zero, size[1] - width), height, width)
