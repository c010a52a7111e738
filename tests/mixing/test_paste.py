"""Pasting for a whole batch against one image at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradmix.errors import UserError
from gradmix.mixing import Boxes, paste, random_boxes
from tests.reference.mixing import inside, paste_cropped, paste_resized

lengths = st.integers(1, 17)
seeds = st.integers(0, 2**32 - 1)
ratios = st.lists(st.floats(2**-7, 1.0, width=32), min_size=1, max_size=4).map(torch.tensor)
quickly = settings(max_examples=80, deadline=None)


def scene(ratio: Tensor, rows: int, columns: int, seed: int) -> tuple[Tensor, Tensor, Boxes]:
    generator = torch.Generator().manual_seed(seed)
    images, partners = torch.rand(2, len(ratio), 3, rows, columns, generator=generator)
    return images, partners, random_boxes(len(ratio), ratio, (rows, columns), generator)


@quickly
@given(ratio=ratios, rows=lengths, columns=lengths, seed=seeds)
def test_resized_patch_is_interpolates_and_the_rest_is_the_image(
    ratio: Tensor, rows: int, columns: int, seed: int
) -> None:
    images, partners, boxes = scene(ratio, rows, columns, seed)
    mixed = paste(images, partners, boxes)
    outside = ~inside(boxes, (rows, columns))[:, None].expand_as(images)
    assert torch.equal(mixed[outside], images[outside])
    torch.testing.assert_close(mixed, paste_resized(images, partners, boxes), rtol=0, atol=1e-5)


@quickly
@given(ratio=ratios, rows=lengths, columns=lengths, seed=seeds)
def test_cropped_patch_is_the_partners_own_pixels(ratio: Tensor, rows: int, columns: int, seed: int) -> None:
    images, partners, boxes = scene(ratio, rows, columns, seed)
    assert torch.equal(paste(images, partners, boxes, "crop"), paste_cropped(images, partners, boxes))


@quickly
@given(ratio=ratios, rows=lengths, columns=lengths, seed=seeds)
def test_nothing_but_the_two_sources_is_in_the_result(
    ratio: Tensor, rows: int, columns: int, seed: int
) -> None:
    """Images below 0, partners above 1: the patch stays in the partners' range, the rest in the images'."""
    images, partners, boxes = scene(ratio, rows, columns, seed)
    mixed = paste(-1 - images, 1 + partners, boxes)
    foreign = inside(boxes, (rows, columns))[:, None].expand_as(mixed)
    assert (mixed[foreign] >= 1).all()
    assert (mixed[foreign] <= 2 + 1e-5).all()
    assert (mixed[~foreign] <= -1).all()


def test_a_box_of_the_whole_image_shows_the_whole_partner() -> None:
    images, partners, boxes = scene(torch.ones(2), 32, 20, seed=0)
    torch.testing.assert_close(paste(images, partners, boxes), partners, rtol=0, atol=1e-5)
    assert torch.equal(paste(images, partners, boxes, "crop"), partners)


def test_at_photograph_size() -> None:
    images, partners, boxes = scene(torch.tensor([0.1, 0.33, 0.5]), 224, 180, seed=0)
    expected = paste_resized(images, partners, boxes)
    # Coordinates in single precision are good to about 1e-5 pixel here, and so are the values.
    torch.testing.assert_close(paste(images, partners, boxes), expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("patch", ["resize", "crop"])
def test_the_sources_are_left_alone_and_precision_is_kept(patch: str) -> None:
    images, partners, boxes = scene(torch.tensor([0.5, 0.3]), 8, 6, seed=0)
    images, partners = images.double(), partners.double()
    before = images.clone(), partners.clone()
    assert paste(images, partners, boxes, patch).dtype == torch.float64
    assert torch.equal(images, before[0])
    assert torch.equal(partners, before[1])


def test_misspelt_patch_names_the_nearest() -> None:
    with pytest.raises(UserError, match="no patch 'resized'; did you mean 'resize'"):
        paste(*scene(torch.tensor([0.5]), 4, 4, seed=0), "resized")
