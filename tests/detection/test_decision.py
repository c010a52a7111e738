"""One place decides: score, class bias, threshold, label."""

from __future__ import annotations

import math

import pytest
import torch

from gradmix.detection import (
    DETECTORS,
    KNN,
    MLS,
    ClassThreshold,
    Decision,
    Detector,
    HeadWeights,
    KnownScores,
    Outputs,
    Scores,
    Threshold,
    load_detector,
    make_detector,
)
from gradmix.errors import UserError


@pytest.fixture
def outputs() -> Outputs:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    features = torch.eye(3, 8)[labels] * 3 + torch.randn(60, 8, generator=generator)
    shapes = {"dummies": (2,), "errors": (3,), "rotation": (4, 4), "cosines": (3,), "local_mcm": (1,)}
    shapes |= {"negative_cosines": (6,), "no_logits": (3,)}
    extra = {name: torch.rand(60, *shape, generator=generator) for name, shape in shapes.items()}
    logits = torch.randn(60, 3, generator=generator)
    h = (torch.eye(3, 12)[labels] * 2 + torch.randn(60, 12, generator=generator)).relu()
    head = HeadWeights(torch.randn(3, 12, generator=generator), torch.randn(3, generator=generator))
    return Outputs(features, labels, logits, extra, h, head)


def fit(name: str, outputs: Outputs) -> Detector:
    """Fit with held-out images, for those that look at them: some of the same."""
    return make_detector(name).fit(outputs, 3, held_out=outputs.select(slice(0, 20)))


def at(value: float, *by_class: float) -> Threshold:
    classes = tuple(ClassThreshold(v, 9, guaranteed=True) for v in by_class)
    return Threshold(value, 0.1, 99, guaranteed=True, per_class=bool(by_class), by_class=classes)


def test_accepted_from_the_threshold_on() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.5]])
    some = Outputs(torch.zeros(3, 2), torch.tensor([-1, -1, -1]), logits)
    found = Decision(MLS(), at(1.0)).decide(some, ("a", "b"))
    assert found.label.tolist() == [0, 1, -1]
    assert found.nearest.tolist() == [0, 1, 1]
    assert found.score.tolist() == [1.0, 2.0, 0.5]
    assert found.accepted.tolist() == [True, True, False]
    assert found.names() == ["a", "b", "unknown"]
    assert found.part(1, 3).names() == ["b", "unknown"]
    assert found.p_value.isnan().all()  # there is nothing to compare with


def test_p_values_stay_with_their_images() -> None:
    known = KnownScores.of(Scores(torch.arange(9.0), torch.zeros(9, dtype=torch.int64)), 2)
    decision = Decision(MLS(), known.threshold(0.2), known=known)
    some = Outputs(torch.zeros(3, 2), torch.full((3,), -1), torch.tensor([[0.5, 0], [3.5, 0], [9.0, 0]]))
    found = decision.decide(some, ("a", "b"))
    assert found.p_value.tolist() == [0.2, 0.5, 1.0]
    assert found.names() == ["unknown", "a", "a"]
    part = found.part(1, 2)
    assert (part.p_value.tolist(), part.false_reject, part.class_names) == ([0.5], 0.2, ("a", "b"))
    assert found.control_false_discoveries(0.8).names() == ["unknown", "unknown", "a"]


def test_each_class_has_its_own_threshold() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    some = Outputs(torch.zeros(2, 2), torch.tensor([-1, -1]), logits)
    decision = Decision(MLS(), at(0.0, 0.5, 3.0))
    assert decision.decide(some).label.tolist() == [0, -1]
    margins, zero = decision.margins(some)
    assert zero == 0.0
    assert margins.score.tolist() == [0.5, -1.0]
    open_to_all, _ = Decision(MLS(), at(0.0, 0.5, -math.inf)).margins(some)
    assert open_to_all.score.isfinite().all()  # so that a metric can sort them
    found = decision.decide(some)
    assert found.threshold.tolist() == [0.5, 3.0]
    assert found.part(1, 2).threshold.tolist() == [3.0]
    same, value = Decision(MLS(), at(1.5)).margins(some)
    assert (same.score.tolist(), value) == ([1.0, 2.0], 1.5)


def test_a_bias_moves_the_label_and_the_score(outputs: Outputs) -> None:
    knn = KNN(k=2, normalize="none").fit(outputs, 3)
    plain, biased = Decision(knn, at(0.0)), Decision(knn, at(0.0), (0.0, 0.0, 9.0))
    assert torch.equal(plain.scores(outputs).score, knn.score(outputs).score)
    assert set(biased.scores(outputs).label.tolist()) == {2}
    d = knn.class_similarity(outputs.features).double()
    torch.testing.assert_close(biased.scores(outputs).score, d[:, 2] + 9.0, rtol=0, atol=1e-12)
    assert torch.equal(biased.class_scores(outputs).argmax(1), biased.scores(outputs).label)
    with pytest.raises(UserError, match="goes with neighbours"):
        Decision(MLS(), at(0.0), (0.0, 1.0))


def test_many_queries_are_answered_in_parts(outputs: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    knn = KNN(k=2, normalize="none").fit(outputs, 3)
    decision = Decision(knn, at(0.0), (0.0, 0.5, 0.0))
    whole = decision.scores(outputs)
    monkeypatch.setattr("gradmix.detection.decision._QUERIES_AT_ONCE", 7)
    parts = decision.scores(outputs)
    assert torch.equal(parts.label, whole.label)
    torch.testing.assert_close(parts.score, whole.score, rtol=1e-6, atol=1e-6)  # float32 sums, other shapes


@pytest.mark.parametrize("name", [*DETECTORS, "knn+mls", "temperature+vim+knn:sum"])
def test_every_detector_saves_and_loads_to_the_bit(name: str, outputs: Outputs) -> None:
    made = fit(name, outputs)
    state = {key: value.clone() for key, value in made.state().items()}
    again = load_detector(name, made.settings(), state)
    assert torch.equal(again.score(outputs).score, made.score(outputs).score)
    assert torch.equal(again.score(outputs).label, made.score(outputs).label)
    assert torch.equal(made.class_scores(outputs).argmax(1), made.score(outputs).label)


# Products of matrices, of one row or many: rounded differently, some of them in float32.
MATRICES = (
    "klm",
    "she",
    "rmds",
    "vim",
    "residual",
    "neco",
    "fdbd",
    "nci",
    "react",
    "vra",
    "ash",
    "scale",
    "dice",
)
IN_FLOAT32 = ("knn_distance", "nnguide", "relation")


@pytest.mark.parametrize("name", [name for name in DETECTORS if name not in ("knn", "nno")])
def test_the_score_of_an_image_does_not_depend_on_the_others(name: str, outputs: Outputs) -> None:
    made = fit(name, outputs)
    whole = made.score(outputs)
    close = 1e-5 if name in IN_FLOAT32 else 1e-10 if name in MATRICES else 1e-14
    for i in (0, 7, 59):
        alone = made.score(outputs.select(torch.tensor([i])))
        # An image among its own neighbours is at distance √(2 − 2 cos) of about 0: the root enlarges errors.
        at_zero = 2e-3 if name == "knn_distance" else close
        torch.testing.assert_close(alone.score[0], whole.score[i], rtol=close, atol=at_zero)
        assert alone.label[0] == whole.label[i]
    assert whole.score.dtype == torch.float64
    assert len(made.score(outputs.select(torch.tensor([], dtype=torch.int64))).score) == 0


@pytest.mark.parametrize("name", DETECTORS)
def test_every_detector_says_what_it_needs(name: str, outputs: Outputs) -> None:
    detector = fit(name, outputs)
    bare = Outputs(outputs.features, outputs.labels)
    if detector.prefers == {"penultimate"}:
        with pytest.raises(UserError, match="fitted to penultimate activations, and these outputs have none"):
            detector.score(bare)
    elif detector.needs == {"logits"}:
        with pytest.raises(UserError, match=f"'{name}' needs logits.*models trained with ce"):
            detector.score(bare)
    elif not detector.needs <= {"features"}:
        missing = ", ".join(sorted(detector.needs))
        with pytest.raises(
            UserError, match=rf"'{name}' needs {missing}, which .* \((models|all) .* do\); use knn"
        ):
            detector.score(bare)
    else:
        assert len(detector.score(bare).score) == 60


def test_an_index_gives_back_what_it_was_given(outputs: Outputs) -> None:
    knn = KNN().fit(outputs, 3)
    again = KNN.from_state(knn.state(), knn.settings())
    for index in (knn, again):
        found = index.training_features()
        torch.testing.assert_close(found.features, outputs.features, rtol=1e-6, atol=1e-6)
        assert torch.equal(found.labels, outputs.labels)
        assert index.keeps_lengths
    directions = {name: value for name, value in knn.state().items() if name != "lengths"}
    old = KNN.from_state(directions, knn.settings())
    assert not old.keeps_lengths
    unit = torch.nn.functional.normalize(outputs.features, dim=1)
    torch.testing.assert_close(old.training_features().features, unit, rtol=1e-6, atol=1e-6)
