from __future__ import annotations

import json
import math
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gradmix.detection import KNN, SCORE_NORMALIZATIONS, Outputs, knn_similarity, known_score
from gradmix.detection.bank import Bank
from gradmix.errors import UserError
from tests.reference import knn as reference


def angle(degrees: float) -> list[float]:
    return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]


def outputs(z: torch.Tensor, labels: torch.Tensor | None = None) -> Outputs:
    return Outputs(z, torch.full((len(z),), -1) if labels is None else labels)


@st.composite
def problems(draw):
    """Any shapes; entries include zeros, so that zero vectors and equal ones turn up."""
    seed = draw(st.integers(0, 10_000))
    g = torch.Generator().manual_seed(seed)
    num_classes, d = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    m, n = draw(st.integers(1, 40)), draw(st.integers(0, 9))
    coarse = draw(st.booleans())

    def features(count: int) -> torch.Tensor:
        return (
            torch.randint(-1, 2, (count, d), generator=g).float()
            if coarse
            else torch.randn(count, d, generator=g)
        )

    labels = torch.randint(0, num_classes, (m,), generator=g)
    return features(n), features(m), labels, num_classes


@settings(max_examples=80, deadline=None)
@given(problems(), st.integers(1, 20), st.sampled_from([1, 300, 3000, 2**28]))
def test_equals_brute_force_for_any_shapes_and_chunk_size(problem, k, chunk_bytes):
    test, train, labels, num_classes = problem
    found = knn_similarity(test, train, labels, num_classes, k, chunk_bytes=chunk_bytes)
    expected = reference.knn_similarity(test.tolist(), train.tolist(), labels.tolist(), num_classes, k)
    assert found.shape == (len(test), num_classes)
    torch.testing.assert_close(found, torch.tensor(expected).reshape(found.shape), atol=1e-5, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(1, 5), st.sampled_from(SCORE_NORMALIZATIONS), st.sampled_from([1, 700, 2**28]))
def test_scores_are_the_reference_and_finite(problem, k, normalize, chunk_bytes):
    test, train, labels, num_classes = problem
    knn = KNN(k, normalize, temperature=0.2, chunk_bytes=chunk_bytes).fit(outputs(train, labels), num_classes)
    scores = knn.score(outputs(test))
    assert torch.isfinite(scores.score).all()
    rows = reference.knn_similarity(test.tolist(), train.tolist(), labels.tolist(), num_classes, k)
    for got, label, row in zip(scores.score.tolist(), scores.label.tolist(), rows, strict=True):
        # 1e-3: `sum` divides by as little as 0.001 k, which magnifies float32's rounding of the cosines
        assert got == pytest.approx(reference.known_score(row, k, normalize, 0.2), abs=1e-3, rel=1e-3)
        assert row[label] == pytest.approx(max(row), abs=1e-5)


@settings(max_examples=50, deadline=None)
@given(problems(), st.integers(1, 5), st.sampled_from([1, 700, 2**28]))
def test_leave_one_out_is_brute_force_without_the_image_itself(problem, k, chunk_bytes):
    _, train, labels, num_classes = problem
    knn = KNN(k, "none", chunk_bytes=chunk_bytes).fit(outputs(train, labels), num_classes)
    if len(train) == 1:
        with pytest.raises(UserError, match="at least two"):
            knn.leave_one_out()
        return
    scores = knn.leave_one_out()
    everyone = train.tolist()
    rows = reference.knn_similarity(
        everyone, everyone, labels.tolist(), num_classes, k, own=range(len(train))
    )
    for got, label, row in zip(scores.score.tolist(), scores.label.tolist(), rows, strict=True):
        assert got == pytest.approx(max(row), abs=1e-5)
        assert row[label] == pytest.approx(max(row), abs=1e-5)


@pytest.mark.parametrize(("num_classes", "size"), [(40, 3), (3, 400)])  # by insertion, and by topk
def test_unequal_classes_in_small_tiles(num_classes, size):
    g = torch.Generator().manual_seed(1)
    labels = torch.cat([torch.full((size + 7 * (c % 5),), c) for c in range(num_classes)])
    labels = labels[torch.randperm(len(labels), generator=g)]
    train, test = torch.randn(len(labels), 6, generator=g), torch.randn(5, 6, generator=g)
    expected = torch.tensor(
        reference.knn_similarity(test.tolist(), train.tolist(), labels.tolist(), num_classes, 4)
    )
    for chunk_bytes in (2**28, 20_000, 4_000):
        found = knn_similarity(test, train, labels, num_classes, 4, chunk_bytes)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_angles_known_by_hand():
    train = torch.tensor([angle(0), angle(60), angle(90), angle(180)])
    labels = torch.tensor([0, 0, 1, 1])
    d = knn_similarity(torch.tensor([angle(0)]), train, labels, num_classes=2, k=2)
    torch.testing.assert_close(d, torch.tensor([[1.5, -1.0]]))
    shifted = KNN(2).fit(outputs(train, labels), 2).score(outputs(torch.tensor([angle(0)])))
    assert shifted.score.item() == pytest.approx(1.75 / (1.75 + 0.5))
    assert shifted.label.item() == 0


def test_a_class_with_too_few_images_counts_their_mean():
    train, labels = torch.tensor([angle(0), angle(60), angle(60)]), torch.tensor([0, 1, 1])
    d = knn_similarity(torch.tensor([angle(0)]), train, labels, num_classes=3, k=4)
    torch.testing.assert_close(d, torch.tensor([[4.0, 2.0, -math.inf]]))


def test_printed_score_is_exact_where_it_is_defined_and_safe_elsewhere():
    d = torch.tensor(
        [[2.0, 1.0, 0.5], [2.0, -1.0, -1.0], [2.0, -2.5, -1.0], [-1.0, -2.0, -3.0], [0.0, 0.0, 0.0]]
    )
    score = known_score(d, k=3, normalize="sum").tolist()
    assert score[0] == pytest.approx(2 / 3.5)
    assert score[1] == score[2] == pytest.approx(2 / 0.003)  # sum 0 and below: as the smallest sum
    assert score[3] == pytest.approx(-1 / 0.003)  # printed: +1/6, the wrong sign
    assert score[4] == 0
    near = known_score(torch.tensor([[2.0, -1.0, -0.9969], [2.0, -1.0, -0.9971]]), k=3, normalize="sum")
    assert near[0] == pytest.approx(near[1].item(), rel=0.05)  # no jump where the branches meet


def test_shifted_lies_in_zero_one_and_falls_with_distance():
    train, labels = torch.tensor([angle(0), angle(180)]), torch.tensor([0, 1])
    test = torch.tensor([angle(a) for a in (0, 30, 60, 89)])
    score = KNN(1).fit(outputs(train, labels), 2).score(outputs(test)).score
    assert (score.diff() < 0).all()
    assert score[0] == pytest.approx(1.0)
    assert score[3] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("normalize", ["shifted", "softmax", "none"])
def test_one_class_still_detects(normalize):
    knn = KNN(1, normalize).fit(outputs(torch.tensor([angle(0)]), torch.tensor([0])), 1)
    score = knn.score(outputs(torch.tensor([angle(0), angle(50), angle(170)]))).score
    assert (score.diff() < 0).all()


@pytest.mark.parametrize("normalize", SCORE_NORMALIZATIONS)
def test_extreme_features_give_finite_scores(normalize):
    extreme = torch.tensor(
        [[0.0, 0.0], [3e38, 3e38], [-3e38, 3e38], [1e-45, 0.0], [-1.0, -1.0], [1e-20, 1e20]]
    )
    knn = KNN(2, normalize).fit(outputs(extreme, torch.tensor([0, 0, 1, 2, 2, 4])), 5)
    scores = knn.score(outputs(-extreme))
    assert torch.isfinite(scores.score).all()
    assert torch.isfinite(knn.leave_one_out().score).all()
    assert 3 not in scores.label.tolist()


def test_opposite_to_everything_scores_lowest():
    knn = KNN(1).fit(outputs(torch.tensor([angle(0), angle(0)]), torch.tensor([0, 1])), 2)
    score = knn.score(outputs(torch.tensor([angle(180), angle(90)]))).score
    assert score[0] == pytest.approx(0.0, abs=1e-4)
    assert score[1] == pytest.approx(0.5)


def test_neighbours_are_named_in_the_order_given_to_fit():
    train = torch.tensor([angle(90), angle(10), angle(50), angle(0)])
    for chunk_bytes in (1, 2**28):
        knn = KNN(chunk_bytes=chunk_bytes).fit(outputs(train, torch.tensor([1, 0, 1, 0])), 2)
        found = knn.neighbours(torch.tensor([angle(-5), angle(80)]), top=3)
        assert found.index.tolist() == [[3, 1, 2], [0, 2, 1]]
        assert found.label.tolist() == [[0, 0, 1], [1, 1, 0]]
        assert found.similarity[0, 0].item() == pytest.approx(math.cos(math.radians(5)))
    assert knn.neighbours(train, top=99).index.shape == (4, 4)


def test_state_and_settings_restore_the_same_bits():
    g = torch.Generator().manual_seed(0)
    train, labels = torch.randn(50, 8, generator=g), torch.randint(0, 4, (50,), generator=g)
    knn = KNN(2, "softmax", temperature=0.3).fit(outputs(train, labels), 5)
    again = KNN.from_state(knn.state(), json.loads(json.dumps(knn.settings())))
    test = outputs(torch.randn(20, 8, generator=g))
    assert torch.equal(again.score(test).score, knn.score(test).score)
    assert torch.equal(again.leave_one_out().score, knn.leave_one_out().score)
    assert torch.equal(again.neighbours(test.features, 3).index, knn.neighbours(test.features, 3).index)
    assert torch.equal(knn.state()["labels"], labels)
    with pytest.raises(UserError, match="lacks labels"):
        KNN.from_state({"features": train, "num_classes": torch.tensor([5])}, {})


def test_a_saved_index_is_laid_out_when_it_is_first_searched(monkeypatch):
    """A model that decides by logits need not wait for its index."""
    g = torch.Generator().manual_seed(0)
    features, labels = torch.randn(50, 8, generator=g), torch.randint(0, 4, (50,), generator=g)
    knn = KNN().fit(outputs(features, labels), 4)
    state, built, build = knn.state(), [], Bank.build
    monkeypatch.setattr(Bank, "build", lambda *given: built.append(1) or build(*given))
    again = KNN.from_state(state, knn.settings())
    assert again.keeps_lengths
    assert not built
    other = again.with_settings(normalize="sum")  # takes the layout over
    test = outputs(torch.randn(5, 8, generator=g))
    assert torch.equal(other.score(test).score, knn.with_settings(normalize="sum").score(test).score)
    assert torch.equal(again.score(test).score, knn.score(test).score)
    assert len(built) == 1
    state["features"][3, 0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        KNN.from_state(state, knn.settings()).score(test)


def test_several_threads_may_lay_out_a_saved_index():
    g = torch.Generator().manual_seed(0)
    knn = KNN().fit(outputs(torch.randn(500, 8, generator=g), torch.randint(0, 4, (500,), generator=g)), 4)
    test = outputs(torch.randn(5, 8, generator=g))
    expected, state = knn.score(test).score, knn.state()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            again = KNN.from_state(state, knn.settings())
            found = [pool.submit(again.score, test) for _ in range(4)]
            assert all(torch.equal(each.result().score, expected) for each in found)


@pytest.mark.parametrize("normalize", SCORE_NORMALIZATIONS)
def test_another_normalisation_of_the_same_neighbours(normalize):
    g = torch.Generator().manual_seed(0)
    train = outputs(torch.randn(50, 8, generator=g), torch.arange(50) % 4)
    test = outputs(torch.randn(20, 8, generator=g))
    knn = KNN(2, temperature=0.3).fit(train, 4)
    expected = KNN(2, normalize, temperature=0.3).fit(train, 4).score(test)
    assert torch.equal(knn.with_settings(normalize=normalize).score(test).score, expected.score)
    assert knn.normalize == "shifted"


class LiveBytes(TorchDispatchMode):
    """Follows how many bytes of freshly made tensors are alive, and the most that ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._follow(args, fresh=False)  # what was there before does not count
        result = func(*args, **(kwargs or {}))
        self._follow(result, fresh=True)
        return result

    def _follow(self, tensors, fresh: bool) -> None:
        for tensor in tree_leaves(tensors):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._count(storage, storage.nbytes() if fresh else 0)

    def _count(self, storage, size: int) -> None:
        key = storage._cdata
        if key in self._seen:
            return
        self._seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


@pytest.mark.parametrize("num_classes", [2, 300, 3000])
def test_temporaries_stay_below_chunk_bytes(num_classes):
    g = torch.Generator().manual_seed(0)
    train, labels = torch.randn(12_000, 16, generator=g), torch.arange(12_000) % num_classes
    chunk_bytes = 2**20
    knn = KNN(3, chunk_bytes=chunk_bytes).fit(outputs(train, labels), num_classes)
    test = outputs(torch.randn(100, 16, generator=g))
    for work in (lambda: knn.score(test), lambda: knn.neighbours(test.features, 5)):
        with LiveBytes() as live:
            work()
        assert 0 < live.peak < chunk_bytes


def test_mistakes_are_named():
    with pytest.raises(UserError, match="did you mean 'shifted'"):
        KNN(normalize="shift")
    with pytest.raises(UserError, match="k of at least 1"):
        KNN(k=0)
    with pytest.raises(UserError, match="call fit first"):
        KNN().score(outputs(torch.ones(1, 2)))
    with pytest.raises(UserError, match="image 1 are not finite"):
        KNN().fit(outputs(torch.tensor([[1.0], [math.nan]]), torch.tensor([0, 0])), 1)
    with pytest.raises(UserError, match="training image 1 has label -1"):
        KNN().fit(outputs(torch.ones(2, 1), torch.tensor([0, -1])), 1)
    with pytest.raises(UserError, match="3 dimensions, the training features 2"):
        KNN().fit(outputs(torch.ones(2, 2), torch.tensor([0, 0])), 1).score(outputs(torch.ones(1, 3)))
    with pytest.raises(UserError, match="no training images"):
        KNN().fit(outputs(torch.ones(0, 2), torch.zeros(0, dtype=torch.int64)), 1)
