"""The losses of GRROSR image by image, and a quarter turn pixel by pixel."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.reference.medaf import cross_entropy


def quarter_turn(image: Tensor) -> Tensor:
    """Turn (C, S, S) by 90° against the clock: the last column becomes the first row."""
    turned, side = torch.empty_like(image), image.shape[1]
    for row in range(side):
        for column in range(side):
            turned[:, side - 1 - column, row] = image[:, row, column]
    return turned


def turned_pair(image: Tensor, made: Tensor, quarters: int) -> Tensor:
    for _ in range(quarters):
        image, made = quarter_turn(image), quarter_turn(made)
    return torch.cat([image, made])


def reconstruction_error(images: Tensor, made: Tensor, how: str) -> float:
    pairs = list(zip(images.flatten().tolist(), made.flatten().tolist(), strict=True))
    return sum(abs(a - b) if how == "absolute" else (a - b) ** 2 for a, b in pairs) / len(pairs)


def mean_cross_entropy(logits: Tensor, labels: Tensor) -> float:
    rows = zip(logits.tolist(), labels.tolist(), strict=True)
    return sum(cross_entropy(row, label) for row, label in rows) / len(logits)
