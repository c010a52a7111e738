"""Boxes and pasting, one image and one pixel at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from gradmix.mixing import Boxes


def corners(boxes: Boxes) -> list[tuple[int, int, int, int]]:
    """(top, left, height, width) of each box as Python integers."""
    fields = (boxes.top, boxes.left, boxes.height, boxes.width)
    return list(zip(*(field.tolist() for field in fields), strict=True))


def inside(boxes: Boxes, size: tuple[int, int]) -> Tensor:
    """(N, H, W) bool."""
    out = torch.zeros(len(boxes.top), *size, dtype=torch.bool)
    for i, (top, left, height, width) in enumerate(corners(boxes)):
        for y in range(size[0]):
            for x in range(size[1]):
                out[i, y, x] = top <= y < top + height and left <= x < left + width
    return out


def paste_resized(images: Tensor, partners: Tensor, boxes: Boxes) -> Tensor:
    out = images.clone()
    for i, (top, left, height, width) in enumerate(corners(boxes)):
        patch = torch.nn.functional.interpolate(partners[i : i + 1], (height, width), mode="bilinear")[0]
        out[i, :, top : top + height, left : left + width] = patch
    return out


def paste_cropped(images: Tensor, partners: Tensor, boxes: Boxes) -> Tensor:
    out = images.clone()
    for i, (top, left, height, width) in enumerate(corners(boxes)):
        here = (slice(None), slice(top, top + height), slice(left, left + width))
        out[i][here] = partners[i][here]
    return out


def window_sums(image: Tensor, height: int, width: int) -> Tensor:
    """(rows − height + 1, columns − width + 1): the sum in the window at each place."""
    rows, columns = image.shape
    sums = torch.empty(rows - height + 1, columns - width + 1, dtype=torch.float64)
    for top in range(rows - height + 1):
        for left in range(columns - width + 1):
            sums[top, left] = image[top : top + height, left : left + width].double().sum()
    return sums
