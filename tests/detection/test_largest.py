"""Throwing values away by blocks and by tournament never loses one of the k largest."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmix.detection.bank import BLOCK, BLOCKS_PAY_FROM, k_largest, merge_descending


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 3),
    st.one_of(st.integers(1, 70), st.sampled_from([256, 257, 272, 512, 1008])),
    st.integers(1, 5),
    st.integers(1, 20),
    st.booleans(),
    st.integers(0, 9999),
)
def test_equals_topk(classes, width, queries, k, ties, seed):
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(classes, width, queries, generator=g)
    if ties:
        values = values.round()
    values[torch.rand(values.shape, generator=g) < 0.3] = -torch.inf  # as padding is
    expected = values.topk(min(k, width), dim=1).values
    before = values.clone()
    assert torch.equal(k_largest(values, k), expected)
    assert torch.equal(values, before)


@pytest.mark.parametrize("k", [1, 3, 4])
def test_the_largest_may_all_lie_in_one_block(k):
    width = 2 * BLOCKS_PAY_FROM
    values = torch.zeros(1, width, 1)
    one_block = torch.arange(BLOCK) * (width // BLOCK) + 5
    values[0, one_block, 0] = torch.arange(1.0, BLOCK + 1)
    assert k_largest(values, k).flatten().tolist() == [BLOCK - i for i in range(k)]


def test_merging_with_nothing():
    one = torch.tensor([1.0])
    assert merge_descending([], [one], 3) == [one]
    assert merge_descending([one], [], 3) == [one]
