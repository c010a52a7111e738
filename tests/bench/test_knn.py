"""Every contestant is measured on the same queries, and the loop computes what ours does."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch

from gradmix.bench import knn as bench
from gradmix.detection import KNN
from gradmix.errors import UserError


def test_contestants_and_recall() -> None:
    result = bench.bench_knn(600, 6, 8, k=3, queries=12, rounds=1, approximate=True)
    assert [row.name for row in result.timings] == [bench.OURS, bench.FLAT, bench.LOOP, bench.APPROXIMATE]
    assert all(row.seconds > 0 for row in result.timings)
    assert result.timings[0].ratio == 1.0
    assert result.peak_bytes >= 0
    assert 0.9 <= result.recall <= 1
    assert 0.9 <= result.same_label <= 1
    assert bench.bench_knn(60, 3, 4, k=1, queries=3, rounds=1).recall is None


def test_the_loop_computes_the_same() -> None:
    train, test = bench._make_problem(500, 7, 8, 9)
    found = bench.class_similarity_loop(
        train.features.numpy(), train.labels.numpy(), test.features.numpy(), 7, 3
    )
    expected = KNN(3).fit(train, 7).class_similarity(test.features)
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-5)


def test_nonsense_is_named() -> None:
    with pytest.raises(UserError, match="--classes must be at least 1, not 0"):
        bench.bench_knn(10, 0, 4, 1, 1, 1)


def test_where_the_system_does_not_tell_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no module ``resource``."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)
    spec = importlib.util.spec_from_file_location("gradmix.bench.knn_of_windows", bench.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, again.__name__, again)
    spec.loader.exec_module(again)
    assert again._get_peak_memory() == 0
