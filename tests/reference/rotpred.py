"""Rotations pixel by pixel, and their cross-entropy image by image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.reference.proser import cross_entropy


def turned(image: Tensor, quarters: int) -> Tensor:
    """An image (C, S, S) turned by so many quarters, counter-clockwise."""
    for _ in range(quarters):
        size = image.shape[1]
        after = torch.empty_like(image)
        for row in range(size):
            for column in range(size):
                after[:, size - 1 - column, row] = image[:, row, column]
        image = after
    return image


def rotation_term(logits: Sequence[Sequence[Sequence[float]]]) -> float:
    """The mean over images and turns r of CE(logits of turn r, r)."""
    each = [cross_entropy(row, r) for image in logits for r, row in enumerate(image)]
    return math.fsum(each) / len(each)
