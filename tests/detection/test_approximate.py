"""The approximate index: exact where it looks into every cell, never above the truth elsewhere."""

from __future__ import annotations

import sys

import pytest
import torch

from gradmix.detection import KNN, Outputs
from gradmix.detection.approximate import CANDIDATES, ApproximateIndex
from gradmix.errors import UserError


def problem(m: int, classes: int, n: int = 40) -> tuple[Outputs, Outputs]:
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, 16, generator=g)
    labels = torch.arange(m) % classes
    train = Outputs(torch.randn(m, 16, generator=g) + centres[labels], labels)
    return train, Outputs(torch.randn(n, 16, generator=g), torch.full((n,), -1))


@pytest.mark.parametrize("k", [1, 3, 7])
def test_equals_the_exact_one_where_all_images_are_candidates(k: int) -> None:
    train, test = problem(CANDIDATES - 56, 6)
    exact, quick = KNN(k).fit(train, 8), KNN(k, index="ivf").fit(train, 8)
    expected = exact.class_similarity(test.features)
    torch.testing.assert_close(quick.class_similarity(test.features), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(quick.score(test).label, exact.score(test).label)
    # Left out of its own neighbours, too, and in classes that then have fewer than k.
    few = Outputs(train.features[:20], train.labels[:20])
    exact, quick = KNN(k).fit(few, 6), KNN(k, index="ivf").fit(few, 6)
    torch.testing.assert_close(quick.leave_one_out().score, exact.leave_one_out().score, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("m", "classes"), [(20_000, 40), (3_000, 900)])  # 900: about k images a class
def test_never_above_the_exact_one(m: int, classes: int) -> None:
    train, test = problem(m, classes, n=200)
    exact, quick = KNN(3).fit(train, classes), KNN(3, index="ivf").fit(train, classes)
    truth, found = exact.class_similarity(test.features), quick.class_similarity(test.features)
    assert (found <= truth + 1e-4).all()
    assert (found < truth - 1e-2).any()  # it is approximate


def test_labels_are_mostly_the_exact_ones() -> None:
    train, test = problem(20_000, 40, n=200)
    exact, quick = KNN(3).fit(train, 40), KNN(3, index="ivf").fit(train, 40)
    assert (quick.score(test).label == exact.score(test).label).float().mean() > 0.97
    assert quick.leave_one_out().score.isfinite().all()


def test_saved_without_faiss_and_built_again_alike() -> None:
    train, test = problem(3_000, 5)
    quick = KNN(3, index="ivf").fit(train, 5)
    assert set(quick.state()) == {"features", "labels", "lengths", "num_classes"}
    again = KNN.from_state(quick.state(), quick.settings())
    assert isinstance(again._require_search(), ApproximateIndex)
    assert torch.equal(again.score(test).score, quick.score(test).score)


def test_without_faiss_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    train, _ = problem(30, 3)
    with pytest.raises(UserError, match=r"needs faiss: pip install 'gradmix\[faiss\]'"):
        KNN(index="ivf").fit(train, 3)
    KNN().fit(train, 3)
    with pytest.raises(UserError, match="no index 'hnsw'"):
        KNN(index="hnsw")
