"""The doors for people who have only arrays, the sums of scores, and the names that others use."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from gradmix.detection import (
    ALIASES,
    DETECTORS,
    KNN,
    MLS,
    NNO,
    Decision,
    Ensemble,
    HeadWeights,
    Outputs,
    ReAct,
    Scores,
    Threshold,
    load_detector,
    make_detector,
    mls,
    outputs_of,
    resolve_name,
    score_all,
)
from gradmix.detection.settings import DetectionSettings
from gradmix.errors import UserError
from tests.detection.post_hoc_toy import CLASSES, NEW, TEST, TRAIN


def arrays(outputs: Outputs) -> dict[str, np.ndarray]:
    parts = {"features": outputs.features, "logits": outputs.logits, "penultimate": outputs.penultimate}
    return {name: np.asarray(values) for name, values in parts.items()}


HEAD = TRAIN.head
assert HEAD is not None
PAIR = (np.asarray(HEAD.weight), np.asarray(HEAD.bias))
LABELS = np.asarray(TRAIN.labels)


@pytest.mark.parametrize(
    "name", [*NEW, "knn", "nno", "msp", "mls", "energy", "entropy", "openmax", "knn+mls"]
)
def test_arrays_give_what_outputs_give(name: str) -> None:
    expected = make_detector(name).fit(TRAIN, CLASSES, held_out=TEST).score(TEST)
    held_out = {**arrays(TEST), "labels": np.asarray(TEST.labels), "head": PAIR}
    made = make_detector(name).fit(**arrays(TRAIN), labels=LABELS, head=PAIR, held_out=held_out)
    found = made.score(**arrays(TEST), head=PAIR)
    torch.testing.assert_close(found.score, expected.score, rtol=1e-9, atol=1e-9)
    assert torch.equal(found.label, expected.label)


def test_it_reads_well() -> None:
    z, y = np.eye(3, dtype=np.float32), np.array([0, 1, 2])
    assert KNN(k=1).fit(z, y).score(z).label.tolist() == [0, 1, 2]
    assert NNO().fit(torch.from_numpy(z), torch.from_numpy(y)).score(z).label.tolist() == [0, 1, 2]
    assert MLS().score(logits=z).score.tolist() == [1.0, 1.0, 1.0]  # nothing to learn
    react = ReAct().fit(penultimate=z, labels=y, head=(z, np.zeros(3)))
    assert len(react.score(penultimate=z[:2], head=(z, np.zeros(3))).score) == 2
    frozen = z.copy()
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KNN(k=1).fit(frozen, y)
    assert KNN(k=1).fit(z.astype(np.float16), y.astype(np.uint8)).score(z).label.tolist() == [0, 1, 2]


def test_the_parts_complete_each_other() -> None:
    h = torch.rand(4, 3)
    made = outputs_of(penultimate=h, head=(torch.ones(2, 3), torch.zeros(2)))
    assert made.features is made.penultimate
    assert made.logits is not None
    torch.testing.assert_close(made.logits[:, 0], h.sum(1))
    some = made.select(torch.tensor([1, 3]))
    assert some.penultimate is some.features  # not held twice
    assert some.head is made.head
    assert outputs_of(logits=h).parts == {"logits"}
    assert outputs_of(h).parts == {"features"}


class OldStyle(MLS):
    """Written before there were two doors: it overrides those that its users call."""

    name = "old"

    def fit(self, train: Outputs, num_classes: int, **more: object) -> OldStyle:  # type: ignore[override]
        self._num_classes = num_classes
        return self

    def score(self, test: Outputs) -> Scores:  # type: ignore[override]
        assert test.logits is not None
        return Scores(-test.logits.double().amax(1), test.logits.argmax(1))


def test_a_detector_that_overrides_fit_and_score_still_decides() -> None:
    accept_all = Threshold(-math.inf, 0.1, 9, guaranteed=True)
    found = Decision(OldStyle().fit(TRAIN, CLASSES), accept_all).decide(TEST)
    assert TEST.logits is not None
    assert torch.equal(found.score, -mls(TEST.logits))


def test_mistakes_with_arrays_are_named() -> None:
    z, y = np.eye(3), np.array([0, 1, 2])
    for wrong, message in (
        (lambda: KNN().fit(z, y.astype(float)), "labels must be whole numbers"),
        (lambda: KNN().fit(z), r"training images need labels 0, 1, …: fit\(features, labels\)"),
        (lambda: KNN().fit(z, y[:2]), "3 features but labels of shape"),
        (lambda: KNN().fit(z[0], y), "features must have one row per image"),
        (lambda: KNN().fit([["a"], [None]], y), "features must be an array of numbers"),
        (lambda: KNN().fit(z, y, labels=y), "labels are given twice"),
        (lambda: KNN().fit(TRAIN, y), "outputs have labels of their own"),
        (lambda: KNN().fit(TRAIN, 3, logits=z), "'logits' is a part of the outputs"),
        (lambda: MLS().score(), "no arrays to score"),
        (lambda: MLS().score(z), "'mls' needs logits"),
        (lambda: ReAct().fit(z, y), "'react' needs head, logits, penultimate.*models trained with ce"),
        (lambda: ReAct().fit(penultimate=z, labels=y, head=z), "head must be a pair|a head has weights"),
        (
            lambda: outputs_of(penultimate=z, head=(np.ones((2, 4)), np.zeros(2))),
            "the head takes 4 dimensions",
        ),
        (lambda: HeadWeights(torch.ones(2, 3), torch.zeros(3)), "one bias per class"),
        (lambda: outputs_of(z, penultimate=z[:2]), "3 features but penultimate activations of shape"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()


def test_all_scores_at_once() -> None:
    scores = score_all({**arrays(TRAIN), "labels": LABELS}, arrays(TEST), head=PAIR)
    applies = {name for name, kind in DETECTORS.items() if kind.needs <= TRAIN.parts} - {"temperature"}
    assert set(scores) == applies
    for name, score in scores.items():
        expected = make_detector(name).fit(TRAIN, CLASSES).score(TEST).score
        torch.testing.assert_close(score, expected, rtol=1e-9, atol=1e-9)
    assert "temperature" in score_all(TRAIN, TEST, held_out=TEST)
    only_features = score_all({"features": TRAIN.features, "labels": LABELS}, {"features": TEST.features})
    assert set(only_features) == {"knn", "nno", "knn_distance", "rmds"}
    only_logits = score_all({"logits": TRAIN.logits, "labels": LABELS}, {"logits": TEST.logits})
    assert {"mls", "gen", "klm", "openmax"} <= set(only_logits)
    assert "knn" not in only_logits
    assert list(score_all(TRAIN, TEST, detectors=["mds", "knn+mls"], held_out=TEST)) == ["nno", "knn+mls"]
    bare = Outputs(TRAIN.features, TRAIN.labels, TRAIN.logits, penultimate=TRAIN.penultimate)
    assert "vim" in score_all(
        bare, Outputs(TEST.features, TEST.labels, TEST.logits, {}, TEST.penultimate), head=HEAD
    )
    with pytest.raises(UserError, match="'vim' needs head"):
        score_all(bare, TEST, detectors=["vim"])


def test_names_that_others_use_are_no_rows_of_their_own() -> None:
    assert not set(ALIASES) & set(DETECTORS)
    for alias, name in ALIASES.items():
        assert make_detector(alias).name == name
        assert DetectionSettings(detector=alias).detector == name
    assert resolve_name("maxlogit+ebo") == "mls+energy"
    assert DetectionSettings(detector="mahalanobis+knn:sum").detector == "nno+knn:sum"
    assert DetectionSettings(detector="ebo", score_temperature=5.0).settings_of("energy") == {
        "temperature": 5.0
    }
    with pytest.raises(UserError, match="no detector 'mlss'; did you mean 'mls'"):
        DetectionSettings(detector="knn+mlss")


def test_a_sum_is_the_mean_of_standardized_scores() -> None:
    made = make_detector("nno+mls").fit(TRAIN, CLASSES, held_out=TEST)
    assert isinstance(made, Ensemble)
    parts = []
    for name in ("nno", "mls"):
        detector = make_detector(name).fit(TRAIN, CLASSES)
        score, known = detector.score(TRAIN).score, detector.score(TEST).score
        parts.append((score - known.mean()) / np.std(known.numpy()))
    found = made.score(TRAIN)
    torch.testing.assert_close(found.score, (parts[0] + parts[1]) / 2, rtol=1e-9, atol=1e-9)
    assert torch.equal(found.label, make_detector("nno").fit(TRAIN, CLASSES).score(TRAIN).label)
    on_held_out = made.score(TEST).score
    assert float(on_held_out.mean()) == pytest.approx(0, abs=1e-9)


def test_without_held_out_images_a_sum_says_so() -> None:
    with pytest.warns(UserWarning, match=r"no images were held out: knn\+mls standardizes"):
        made = make_detector("knn+mls").fit(TRAIN, CLASSES)
    knn = KNN().fit(TRAIN, CLASSES).leave_one_out().score  # each would be its own neighbour
    assert float(made.state()["mean"][0]) == pytest.approx(float(knn.mean()))
    assert TRAIN.logits is not None
    assert float(made.state()["mean"][1]) == pytest.approx(float(mls(TRAIN.logits).mean()))


def test_a_sum_is_made_saved_and_refused_by_its_parts() -> None:
    made = make_detector("temperature+knn:none").fit(TRAIN, CLASSES, held_out=TEST)
    state = {key: value.clone() for key, value in made.state().items()}
    again = load_detector(made.name, made.settings(), state)
    assert again.name == "temperature+knn:none"
    assert torch.equal(again.score(TEST).score, made.score(TEST).score)
    with pytest.raises(UserError, match="learns from known images that were kept out"):
        make_detector("knn+temperature").fit(TRAIN, CLASSES)
    with pytest.raises(UserError, match="has a score twice"):
        make_detector("mls+maxlogit")
    with pytest.raises(UserError, match="has no setting 'k': its parts have theirs"):
        make_detector("knn+mls", k=3)
    with pytest.raises(UserError, match=r"'knn\+mls' needs logits"):
        make_detector("knn+mls").fit(Outputs(TRAIN.features, TRAIN.labels), CLASSES)
    with pytest.raises(UserError, match="seen no images; call fit first"):
        make_detector("msp+mls").score(TEST)
    constant = outputs_of(logits=torch.ones(4, 2), labels=torch.tensor([0, 1, 0, 1]))
    flat = make_detector("msp+mls").fit(constant, 2, held_out=constant)
    assert flat.score(constant).score.tolist() == [0.0] * 4
