"""RandAugment(N, M) (Cubuk et al. 2020), as the releases of open-set recognition use it.

N operations are drawn per image, with replacement, each with the value lo + M/30·(hi − lo) of its range, in
Pillow's arithmetic (``pixel_operations.py``). The ranges are absolute, made for photos of 300 pixels: at
M = 6 a translation moves 20 pixels, most of an image of 32. They are kept, because the published settings
were tuned with them. "More" is not always stronger: posterize and solarize do *less* the larger M is.

``medaf`` is another scheme (FixMatch's): the strength is drawn per operation from 1 … M−1 of 10, half of the
operations are left out, blends only darken, blur or fade, and translations are shares of the side.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError, choose
from .pixel_operations import (
    TABLES,
    change_color,
    cut_out,
    look_up,
    make_table,
    rotation_matrices,
    sample_nearest,
    sharpen,
)

_NONE = "identity"
_GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y", "shift_x", "shift_y")
# The last two are translations by a share of the side.
OPERATIONS = (_NONE, *TABLES, "color", "sharpness", "cutout", *_GEOMETRIC)
_NUMBER = {name: i for i, name in enumerate(OPERATIONS)}
_SIGNED = tuple(_NUMBER[name] for name in _GEOMETRIC)

_RELEASED: dict[str, tuple[float, float]] = {
    "autocontrast": (0, 1),
    "equalize": (0, 1),
    "invert": (0, 1),
    "rotate": (0, 30),  # degrees
    "posterize": (0, 4),  # bits
    "solarize": (0, 256),
    "solarize_add": (0, 110),
    "color": (0.1, 1.9),
    "contrast": (0.1, 1.9),
    "brightness": (0.1, 1.9),
    "sharpness": (0.1, 1.9),
    "shear_x": (0, 0.3),
    "shear_y": (0, 0.3),
    "cutout": (0, 40),  # pixels
    "translate_x": (0, 100),  # pixels
    "translate_y": (0, 100),
}
_MEDAF: dict[str, tuple[float, float]] = {
    "autocontrast": (0, 1),
    "brightness": (0.05, 0.95),
    "color": (0.05, 0.95),
    "contrast": (0.05, 0.95),
    "equalize": (0, 1),
    _NONE: (0, 1),
    "posterize": (4, 8),
    "rotate": (0, 30),
    "sharpness": (0.05, 0.95),
    "shear_x": (0, 0.3),
    "shear_y": (0, 0.3),
    "solarize": (256, 0),
    "shift_x": (0, 0.3),
    "shift_y": (0, 0.3),
}
_NOT_ON_DIGITS = ("rotate", "translate_x", "translate_y")
MEDAF = "medaf"
OPERATION_LISTS: dict[str, dict[str, tuple[float, float]]] = {
    "all": _RELEASED,
    "digits": {name: span for name, span in _RELEASED.items() if name not in _NOT_ON_DIGITS},
    MEDAF: _MEDAF,
}


def check_randaugment(randaugment: tuple[int, int], operations: str) -> None:
    """Raise UserError unless there is such a list, and M is in its range."""
    choose("randaugment_operations", operations, OPERATION_LISTS)
    count, magnitude = randaugment
    if count < 0:
        raise UserError(f"randaugment: N must not be negative, not {count}; 0, 0 is off")
    low, high = (2, 10) if operations == MEDAF else (0, 30)
    if count and not low <= magnitude <= high:
        raise UserError(
            f"randaugment: M of '{operations}' must lie between {low} and {high}, not {magnitude}"
        )


@dataclass(frozen=True)
class RandAugmentDraws:
    """What is done to N images, in k steps."""

    operations: Tensor  # (N, k): places in OPERATIONS
    values: Tensor  # (N, k), float64, with their signs
    spots: Tensor  # (N, k, 2): where a cutout is

    def __getitem__(self, rows: slice) -> RandAugmentDraws:
        return RandAugmentDraws(self.operations[rows], self.values[rows], self.spots[rows])


class RandAugment:
    """RandAugment(N, M) over one of OPERATION_LISTS; draws for a batch, and applies to any rows of it."""

    def __init__(self, count: int, magnitude: int, operations: str = "all") -> None:
        check_randaugment((count, magnitude), operations)
        spans = OPERATION_LISTS[operations]
        self.count, self.magnitude, self.drawn_strength = count, magnitude, operations == MEDAF
        self.numbers = torch.tensor([_NUMBER[name] for name in spans])
        self.low, self.high = torch.tensor(list(spans.values()), dtype=torch.float64).T

    def draw(self, n: int, generator: torch.Generator) -> RandAugmentDraws:
        """Draw for n images; as many random numbers whatever the list."""
        u = torch.rand(6, n, self.count, generator=generator)
        choice = (u[0].double() * len(self.numbers)).long()  # float32 would round the last up
        if self.drawn_strength:
            strength = (1 + (u[2].double() * (self.magnitude - 1)).floor()) / 10
        else:
            strength = torch.full((n, self.count), self.magnitude / 30, dtype=torch.float64)
        values = strength * (self.high - self.low)[choice] + self.low[choice]
        operations = self.numbers[choice]
        turned = torch.isin(operations, torch.tensor(_SIGNED)) & (u[3] > 0.5)
        if self.drawn_strength:
            operations = operations.masked_fill(u[1] >= 0.5, _NUMBER[_NONE])
        return RandAugmentDraws(operations, torch.where(turned, -values, values), u[4:].permute(1, 2, 0))

    @staticmethod
    def apply(images: Tensor, draws: RandAugmentDraws) -> Tensor:
        """Return images (N, C, H, W), uint8, after all steps, on their device."""
        if images.device.type == "mps":  # which has no float64
            return RandAugment.apply(images.cpu(), draws).to(images.device)
        changed = images.clone()
        for step in range(draws.operations.shape[1]):
            operations = draws.operations[:, step]
            values, spots = draws.values[:, step].to(images.device), draws.spots[:, step].to(images.device)
            _apply_tables(changed, operations, values)
            _apply_geometric(changed, operations, values)
            for name in ("color", "sharpness", "cutout"):
                rows = _rows(operations, name).to(images.device)
                if not len(rows):
                    continue
                if name == "cutout":
                    changed[rows] = cut_out(changed[rows], values[rows], spots[rows])
                else:
                    change = change_color if name == "color" else sharpen
                    changed[rows] = change(changed[rows], values[rows])
        return changed


def _rows(operations: Tensor, *names: str) -> Tensor:
    """Return which images have one of these operations."""
    wanted = torch.tensor([_NUMBER[name] for name in names])
    return torch.isin(operations, wanted).nonzero()[:, 0]


def _apply_tables(images: Tensor, operations: Tensor, values: Tensor) -> None:
    """Change the images in place whose operation is a table: one look-up for all of them."""
    groups = {name: rows for name in TABLES if len(rows := _rows(operations, name).to(images.device))}
    if not groups:
        return
    tables = [make_table(name, images[rows], values[rows]) for name, rows in groups.items()]
    every = torch.cat(list(groups.values()))
    images[every] = look_up(images[every], torch.cat(tables))


def _apply_geometric(images: Tensor, operations: Tensor, values: Tensor) -> None:
    """Change the images in place whose operation moves pixels: one sampling for all of them."""
    rows = _rows(operations, *_GEOMETRIC).to(images.device)
    if not len(rows):
        return
    height, width = images.shape[-2:]
    chosen, value = operations.to(images.device)[rows], values[rows]

    def of(name: str) -> Tensor:
        return torch.where(chosen == _NUMBER[name], value, 0.0)

    matrices = rotation_matrices(of("rotate"), height, width)
    matrices[:, 0, 1] += of("shear_x")
    matrices[:, 1, 0] += of("shear_y")
    matrices[:, 0, 2] += of("translate_x") + (of("shift_x") * width).trunc()
    matrices[:, 1, 2] += of("translate_y") + (of("shift_y") * height).trunc()
    images[rows] = sample_nearest(images[rows], matrices)
