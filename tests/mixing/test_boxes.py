"""Boxes for any map, ratio and image size: inside, of the right size, at the right place."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradmix.mixing import Boxes, boxes_at_peak, boxes_at_window, random_boxes
from gradmix.mixing.boxes import sides
from tests.reference.mixing import corners, inside, window_sums

LOCATORS = {"peak": boxes_at_peak, "window": boxes_at_window}
MAPS = ("random", "zeros", "spike", "ramp", "huge", "negative")

lengths = st.integers(1, 17)
seeds = st.integers(0, 2**32 - 1)
ratios = st.lists(st.floats(2**-7, 1.0, width=32), min_size=1, max_size=4).map(torch.tensor)
kinds = st.sampled_from(MAPS)
quickly = settings(max_examples=80, deadline=None)


def make_maps(kind: str, n: int, rows: int, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if kind == "zeros":
        return torch.zeros(n, rows, columns)
    if kind == "spike":
        maps = torch.zeros(n, rows, columns)
        spots = torch.randint(rows * columns, (n,), generator=generator)
        maps.view(n, -1)[torch.arange(n), spots] = 1
        return maps
    if kind == "ramp":  # the peak is a corner, where the box has to be moved
        return torch.arange(rows * columns, dtype=torch.float32).view(rows, columns).repeat(n, 1, 1)
    maps = torch.rand(n, rows, columns, generator=generator)
    return maps * {"random": 1, "huge": 1e30, "negative": -1}[kind]


def assert_inside_and_sized(boxes: Boxes, ratio: Tensor, rows: int, columns: int) -> None:
    for (top, left, height, width), side in zip(corners(boxes), ratio, strict=True):
        assert height == max(1, round(float(side * rows)))
        assert width == max(1, round(float(side * columns)))
        assert 0 <= top <= rows - height
        assert 0 <= left <= columns - width


@quickly
@given(
    kind=kinds, ratio=ratios, rows=lengths, columns=lengths, seed=seeds, locate=st.sampled_from([*LOCATORS])
)
def test_located_boxes_lie_inside_with_the_size_asked_for(
    kind: str, ratio: Tensor, rows: int, columns: int, seed: int, locate: str
) -> None:
    boxes = LOCATORS[locate](make_maps(kind, len(ratio), rows, columns, seed), ratio)
    assert_inside_and_sized(boxes, ratio, rows, columns)


@quickly
@given(ratio=ratios, rows=lengths, columns=lengths, seed=seeds)
def test_random_boxes_lie_inside_with_the_size_asked_for(
    ratio: Tensor, rows: int, columns: int, seed: int
) -> None:
    boxes = random_boxes(len(ratio), ratio, (rows, columns), torch.Generator().manual_seed(seed))
    assert_inside_and_sized(boxes, ratio, rows, columns)


@quickly
@given(kind=kinds, ratio=ratios, rows=lengths, columns=lengths, seed=seeds)
def test_box_covers_the_peak_and_is_centred_on_it_where_there_is_room(
    kind: str, ratio: Tensor, rows: int, columns: int, seed: int
) -> None:
    maps = make_maps(kind, len(ratio), rows, columns, seed)
    for image, (top, left, height, width) in zip(maps, corners(boxes_at_peak(maps, ratio)), strict=True):
        y, x = divmod(int(image.argmax()), columns)
        assert top <= y < top + height
        assert left <= x < left + width
        # Moved no further than the margin demands: a clamp of the centred position.
        assert top == min(max(y - height // 2, 0), rows - height)
        assert left == min(max(x - width // 2, 0), columns - width)


@quickly
@given(kind=kinds, ratio=ratios, rows=lengths, columns=lengths, seed=seeds)
def test_window_has_the_largest_sum_of_all_positions(
    kind: str, ratio: Tensor, rows: int, columns: int, seed: int
) -> None:
    maps = make_maps(kind, len(ratio), rows, columns, seed)
    for image, (top, left, height, width) in zip(maps, corners(boxes_at_window(maps, ratio)), strict=True):
        sums = window_sums(image, height, width)
        largest, chosen = sums.max(), sums[top, left]
        assert chosen >= largest - 1.001e-5 * abs(largest)  # equal but for rounding, and the first such
        earlier = sums.flatten()[: top * sums.shape[1] + left]
        assert not (earlier > largest - 0.999e-5 * abs(largest)).any()


def test_of_windows_that_differ_by_rounding_the_first_is_taken() -> None:
    maps = torch.zeros(2, 8, 8)
    maps[:, 3, 3], maps[:, 4, 4] = 1.0, 0.5
    maps[1, 7, 7] = 1e-7  # the last bit; the box that also holds it comes last
    assert corners(boxes_at_window(maps, torch.full((2,), 0.625))) == [(0, 0, 5, 5)] * 2


def test_window_prefers_a_plateau_to_a_lonely_spike() -> None:
    maps = torch.zeros(1, 8, 8)
    maps[0, 0, 0] = 1.5
    maps[0, 5:7, 5:7] = 1
    ratio = torch.tensor([0.25])
    assert corners(boxes_at_peak(maps, ratio)) == [(0, 0, 2, 2)]
    assert corners(boxes_at_window(maps, ratio)) == [(5, 5, 2, 2)]


@quickly
@given(ratio=ratios, rows=lengths, columns=lengths, seed=seeds)
def test_mask_and_share_are_those_of_a_pixel_count(ratio: Tensor, rows: int, columns: int, seed: int) -> None:
    size = (rows, columns)
    boxes = random_boxes(len(ratio), ratio, size, torch.Generator().manual_seed(seed))
    mask = inside(boxes, size)
    assert torch.equal(boxes.mask(size), mask)
    counted = mask.flatten(1).sum(1) / (rows * columns)
    torch.testing.assert_close(boxes.share(size), counted, rtol=1e-7, atol=0)


def test_random_boxes_reach_every_position_equally_often() -> None:
    """Side 2 of 4: nine positions; 9,000 draws give each 1,000 ± 120 (four standard deviations)."""
    n = 9000
    boxes = random_boxes(n, torch.full((n,), 0.5), (4, 4), torch.Generator().manual_seed(0))
    counts = torch.bincount(3 * boxes.top + boxes.left, minlength=9)
    assert len(counts) == 9
    assert (counts - 1000).abs().max() < 120


def test_sides_are_at_least_a_pixel_and_at_most_the_image() -> None:
    height, width = sides(torch.tensor([1e-6, 0.5, 1.0]), (7, 32))
    assert height.tolist() == [1, 4, 7]
    assert width.tolist() == [1, 16, 32]


def test_offsets_count_from_the_corner() -> None:
    boxes = Boxes(*(torch.tensor([v]) for v in (1, 2, 2, 1)))
    y, x = boxes.offsets((3, 4))
    assert y.tolist() == [[-1, 0, 1]]
    assert x.tolist() == [[-2, -1, 0, 1]]


def test_the_place_on_a_plateau_does_not_depend_on_the_last_bit() -> None:
    maps = torch.zeros(1, 8, 8)
    maps[0, 2, 3:6] = 1.0
    wobbled = maps.clone()
    wobbled[0, 2, 5] += 1e-7
    ratio = torch.tensor([0.25])
    assert corners(boxes_at_peak(wobbled, ratio)) == corners(boxes_at_peak(maps, ratio))
    wobbled[0, 2, 5] += 1e-3  # no rounding any more
    assert corners(boxes_at_peak(wobbled, ratio)) != corners(boxes_at_peak(maps, ratio))
