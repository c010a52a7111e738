"""Attentive CutMix: the cells with the largest activation, pasted at the same place."""

from __future__ import annotations

import pytest
import torch

from gradmix.errors import UserError
from gradmix.mixing.attentive import attentive_cells, paste_cells


def test_cells_against_a_loop() -> None:
    features = torch.rand(5, 3, 7, 7, generator=torch.Generator().manual_seed(0))
    chosen = attentive_cells(features)
    for one, cells in zip(features, chosen, strict=True):
        means = {(r, c): float(one[:, r, c].mean()) for r in range(7) for c in range(7)}
        best = sorted(means, key=lambda place: -means[place])[:6]
        assert sorted(map(tuple, cells.nonzero().tolist())) == sorted(best)


@pytest.mark.parametrize("side", [1, 3, 4, 14])
def test_features_of_any_size_make_a_grid(side: int) -> None:
    features = torch.rand(2, 4, side, side, generator=torch.Generator().manual_seed(1))
    assert attentive_cells(features).sum((1, 2)).tolist() == [6, 6]


@pytest.mark.parametrize("size", [(7, 7), (28, 28), (32, 32), (30, 45)])
def test_each_pixel_is_from_its_own_cell(size: tuple[int, int]) -> None:
    images, partners = torch.zeros(3, 1, *size), torch.ones(3, 1, *size)
    cells = torch.rand(3, 7, 7, generator=torch.Generator().manual_seed(2)) > 0.5
    mixed = paste_cells(images, partners, cells)
    for n in range(3):
        for r in range(size[0]):
            for c in range(size[1]):
                assert bool(mixed[n, 0, r, c]) == bool(cells[n, r * 7 // size[0], c * 7 // size[1]])


def test_too_many_cells() -> None:
    with pytest.raises(UserError, match="between 1 and 3 of 2x2, not 4"):
        attentive_cells(torch.rand(1, 1, 2, 2), grid=2, cells=4)
