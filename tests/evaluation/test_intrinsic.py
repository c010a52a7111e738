from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmix.errors import UserError
from gradmix.evaluation.intrinsic import intrinsic_dimension, two_nearest, two_nn
from tests.reference import twonn as reference


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 30), st.integers(1, 5), st.sampled_from([0.0, 0.1, 0.5]))
def test_equals_the_loop(seed, n, d, discard):
    points = np.random.default_rng(seed).normal(size=(n, d))
    assert two_nn(points, discard) == pytest.approx(reference.two_nn(points.tolist(), discard), rel=1e-8)


@pytest.mark.parametrize("chunk_bytes", [1, 5000, 2**26])
def test_nearest_distances_in_any_chunks_and_far_from_the_origin(chunk_bytes):
    points = np.random.default_rng(0).normal(size=(40, 3)) * 1e-5 + 1000
    first, second = two_nearest(points, chunk_bytes)
    expected = np.array(reference.two_nearest(points.tolist()))
    np.testing.assert_allclose(first, expected[:, 0], rtol=1e-9)
    np.testing.assert_allclose(second, expected[:, 1], rtol=1e-9)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_finds_the_dimension_of_a_flat_sheet_in_a_larger_space(dimension):
    rng = np.random.default_rng(dimension)
    sheet = rng.uniform(size=(1500, dimension)) @ rng.normal(size=(dimension, 16))
    assert two_nn(sheet) == pytest.approx(dimension, rel=0.12)


def test_scale_shift_and_order_do_not_matter():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 4))
    expected = two_nn(points)
    assert two_nn(points * 1e150) == pytest.approx(expected)
    assert two_nn(points + 10) == pytest.approx(expected)
    assert two_nn(rng.permutation(points)) == pytest.approx(expected)


def test_copies_count_once_with_a_warning():
    points = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.warns(UserWarning, match="7 of 57 features are copies"):
        assert two_nn(np.concatenate([points, points[:7]])) == pytest.approx(two_nn(points))


def test_mean_over_classes_or_all_at_once():
    rng = np.random.default_rng(0)
    line, sheet = np.zeros((40, 6)), np.zeros((50, 6))
    line[:, :1], sheet[:, :3] = rng.uniform(size=(40, 1)), rng.uniform(size=(50, 3)) + 5
    features = torch.from_numpy(np.concatenate([line, sheet]))
    labels = torch.tensor([0] * 40 + [4] * 50)
    expected = (two_nn(line) + two_nn(sheet)) / 2
    assert intrinsic_dimension(features, labels) == pytest.approx(expected)
    assert intrinsic_dimension(features, labels, per_class=False) == two_nn(features)


def test_mistakes_are_named():
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    with pytest.raises(UserError, match="not defined"):
        two_nn(grid)
    with pytest.raises(UserError, match="at least 3 distinct images, not 2"):
        two_nn([[0.0], [1.0]])
    with pytest.raises(UserError, match="class 1: the intrinsic dimension needs"):
        intrinsic_dimension(np.random.default_rng(0).normal(size=(11, 2)), [0] * 10 + [1])
    with pytest.raises(UserError, match="NaN or infinity"):
        two_nn([[0.0], [np.nan], [1.0]])
    with pytest.raises(UserError, match="discard"):
        two_nn(np.eye(4), discard=1.0)
    with pytest.raises(UserError, match="2 features but 1 labels"):
        intrinsic_dimension([[0.0], [1.0]], [0])
