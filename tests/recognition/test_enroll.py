"""Classes come and go without training; the threshold keeps its promise to those that stay."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradmix.data import ImageSet
from gradmix.detection import KNN, Decision, Outputs, Scores, Threshold, calibrate
from gradmix.errors import UserError
from gradmix.recognition import Recognizer, fit, load, save
from gradmix.recognition.calibration import set_decision
from gradmix.recognition.class_bias import compute_class_bias, left_out_similarity
from tests.training.tiny import CLASSES, tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return fit(tiny_images(24), tiny_recipe(epochs=15, holdout=0.25, false_reject=0.1))


def crosses(n: int, seed: int = 3) -> ImageSet:
    return tiny_images(n, ("cross",), seed)


def test_an_enrolled_class_is_recognised(recognizer: Recognizer) -> None:
    known = recognizer.enroll("cross", crosses(8))
    assert known.class_names == (*CLASSES, "cross")
    assert known.enrolled_names == ("cross",)
    answers = known.predict(crosses(40, seed=9))
    assert (answers.nearest == 3).float().mean() > 0.6  # by chance 0.25
    assert "cross" in answers.names()
    assert recognizer.class_names == CLASSES  # the old one is as it was
    old = recognizer.predict(tiny_images(4)).score
    assert torch.equal(recognizer.predict(tiny_images(4)).score, old)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_class_may_have_fewer_images_than_neighbours(recognizer: Recognizer, count: int) -> None:
    """d_c is then the mean of what there is, times k."""
    known = recognizer.enroll("cross", crosses(count))
    test = crosses(6, seed=4)
    z = torch.nn.functional.normalize(known.outputs(test).features, dim=1)
    enrolled = torch.nn.functional.normalize(known.outputs(crosses(count)).features, dim=1)
    k = known.index.k
    expected = (z @ enrolled.T).topk(min(k, count), dim=1).values.mean(1) * k
    torch.testing.assert_close(known.index.class_similarity(z)[:, 3], expected, rtol=1e-4, atol=1e-4)


def test_the_trained_classes_keep_their_promise(recognizer: Recognizer) -> None:
    """Their threshold is the conformal one of the held-out images against the new index."""
    known = recognizer.enroll("cross", crosses(6))
    assert recognizer.calibration is not None
    expected = calibrate(known.scores(recognizer.calibration).score, 0.1)
    assert known.threshold.value == expected.value
    assert known.threshold.promised
    values = [c.value for c in known.threshold.by_class]
    assert values[:3] == [expected.value] * 3
    assert values[3] <= expected.value


def left_out(known: Recognizer, label: int) -> Scores:
    return known.decision.scores_of_classes(left_out_similarity(known.index, known.index.state(), label))


def labels_with(knn: KNN, features: torch.Tensor, bias: tuple[float, ...]) -> torch.Tensor:
    """The classes that ``features`` are taken for with that bias per class."""
    nothing = Threshold(-math.inf, 0.1, 0, guaranteed=False)
    decision = Decision(knn, nothing, bias)
    return decision.scores(Outputs(features, torch.full((len(features),), -1))).label


def test_the_threshold_of_an_enrolled_class_is_its_images_own(recognizer: Recognizer) -> None:
    known = recognizer.enroll("cross", crosses(6))
    found = left_out(known, 3)
    own = found.score[found.label == 3]
    lowest = calibrate(own, max(0.1, 1 / (len(own) + 1))).value
    assert known.threshold.by_class[3].value == min(known.threshold.value, lowest)
    single = recognizer.enroll("cross", crosses(1))
    assert single.threshold.by_class[3].value == single.threshold.value


def test_an_enrolled_class_is_never_harder_to_enter_than_the_others() -> None:
    """Its images are far from all others and score higher than those of the trained classes: t is enough."""
    g = torch.Generator().manual_seed(0)

    def around(axis: int, n: int) -> torch.Tensor:
        """Two classes that overlap in a plane, and one that stands upright on it."""
        noise = torch.tensor([0.01, 0.01, 0.01] if axis == 2 else [0.5, 0.5, 0.0])
        return torch.eye(3)[axis] + noise * torch.randn(n, 3, generator=g)

    features = torch.cat([around(0, 50), around(1, 50), around(2, 12)])
    labels = torch.tensor([0] * 50 + [1] * 50 + [2] * 12)
    knn = KNN(k=3).fit(Outputs(features, labels), 3)
    held_out = Outputs(torch.cat([around(0, 30), around(1, 30)]), torch.tensor([0] * 30 + [1] * 30))
    decision = set_decision(knn, 3, None, held_out, 0.1, enrolled=[2], biased=False)
    found, own = decision.threshold, decision.scores_of_classes(left_out_similarity(knn, knn.state(), 2))
    assert calibrate(own.score[own.label == 2], 0.1).value > found.value
    assert [c.value for c in found.by_class] == [found.value] * 3


def test_leaving_out_within_a_class_is_leaving_out(recognizer: Recognizer) -> None:
    known = recognizer.enroll("cross", crosses(6))
    known = replace(known, decision=replace(known.decision, class_bias=()))
    labels = known.index.state()["labels"]
    whole = known.index.leave_one_out()
    for label in (0, 3):
        found = left_out(known, label)
        torch.testing.assert_close(found.score, whole.score[labels == label], rtol=1e-5, atol=1e-6)
        assert torch.equal(found.label, whole.label[labels == label])


def test_a_class_bias_takes_no_more_than_its_share(recognizer: Recognizer) -> None:
    known = recognizer.enroll("cross", crosses(6))
    held_out = known.calibration
    assert held_out is not None
    assert known.decision.class_bias[:3] == (0.0, 0.0, 0.0)
    assert known.decision.class_bias[3] >= 0
    assert not (known.scores(held_out).label == 3).any()  # 2 % of 18 images is none
    for share, most in ((0.2, 3), (0.5, 9)):
        bias = compute_class_bias(known.index, held_out, [3], share)
        taken = labels_with(known.index, held_out.features, bias) == 3
        assert int(taken.sum()) <= most
        assert bias[3] >= known.decision.class_bias[3]
        typical = left_out_similarity(known.index, known.index.state(), 3)[:, 3].median()
        d = known.index.class_similarity(held_out.features).double()
        own = d.gather(1, held_out.labels[:, None]).median()
        assert bias[3] <= max(0.0, float(own - typical))


def test_a_class_bias_lets_few_images_win() -> None:
    """Two trained classes of many images around two axes, one of three images between them."""
    g = torch.Generator().manual_seed(0)

    def around(*axes: float, n: int) -> torch.Tensor:
        return torch.tensor(axes) + 0.4 * torch.randn(n, 4, generator=g)

    train = torch.cat([around(1, 0, 0, 0, n=500), around(0, 1, 0, 0, n=500), around(0.6, 0.6, 0.3, 0, n=3)])
    labels = torch.tensor([0] * 500 + [1] * 500 + [2] * 3)
    knn = KNN(k=3, normalize="none").fit(Outputs(train, labels), 3)
    held_out = Outputs(
        torch.cat([around(1, 0, 0, 0, n=100), around(0, 1, 0, 0, n=100)]), torch.tensor([0] * 100 + [1] * 100)
    )
    bias = compute_class_bias(knn, held_out, [2], share=0.1)
    new = around(0.6, 0.6, 0.3, 0, n=200)
    plain, biased = (labels_with(knn, new, b) == 2 for b in ((), bias))
    assert bias[2] > 0
    assert float(biased.float().mean()) > 3 * float(plain.float().mean())
    old = torch.cat([around(1, 0, 0, 0, n=1000), around(0, 1, 0, 0, n=1000)])
    assert float((labels_with(knn, old, bias) == 2).float().mean()) < 0.17


def test_forgetting_undoes_enrolling(recognizer: Recognizer) -> None:
    back = recognizer.enroll("cross", crosses(5)).forget("cross")
    images = tiny_images(5, (*CLASSES, "cross"), seed=8)
    assert back.class_names == CLASSES
    assert back.enrolled_names == ()
    assert back.threshold == recognizer.threshold
    index, before = back.index.state(), recognizer.index.state()
    assert index.keys() == before.keys()  # the lengths of the features too, for scores that need them
    assert all(torch.equal(index[name], before[name]) for name in before)
    assert torch.equal(back.predict(images).score, recognizer.predict(images).score)
    assert back.gallery.sources == recognizer.gallery.sources
    assert back.gallery.pictures is not None
    assert recognizer.gallery.pictures is not None
    assert torch.equal(back.gallery.pictures, recognizer.gallery.pictures)


def test_forgetting_a_trained_class_leaves_nothing_of_it(recognizer: Recognizer) -> None:
    without = recognizer.forget("disc")
    assert without.class_names == ("bar", "square")
    assert len(without.index.state()["labels"]) == 36
    assert without.calibration is not None
    assert len(without.calibration.labels) == 12
    assert set(without.calibration.labels.tolist()) == {0, 1}
    assert without.threshold.n == 12
    assert without.gallery.pictures is not None
    assert len(without.gallery.pictures) == 36
    squares = tiny_images(6, ("square",), seed=6)
    nearest = without.predict(squares).nearest
    assert torch.equal(nearest == 1, recognizer.predict(squares).nearest.where(nearest == 1, -1) == 2)


def test_adding_to_a_class_only_when_asked(recognizer: Recognizer) -> None:
    known = recognizer.enroll("cross", crosses(2))
    with pytest.raises(UserError, match=r"knows a class 'cross' already; add the images to it with --add"):
        known.enroll("cross", crosses(2, seed=5))
    more = known.enroll("cross", crosses(2, seed=5), add=True)
    at_once = recognizer.enroll("cross", _joined(crosses(2), crosses(2, seed=5)))
    assert more.class_names == at_once.class_names
    assert_same_but_for_rounding(more, at_once)
    assert more.enrolled_names == ("cross",)
    trained = recognizer.enroll("bar", tiny_images(2, ("bar",), seed=7), add=True)
    assert trained.enrolled_names == ()
    assert trained.class_names == CLASSES


def assert_same_but_for_rounding(a: Recognizer, b: Recognizer) -> None:
    """Same index and threshold. The network rounds an image's features differently in another batch size."""
    index, other = a.index.state(), b.index.state()
    assert torch.equal(index["labels"], other["labels"])
    torch.testing.assert_close(index["features"], other["features"], rtol=1e-5, atol=1e-5)
    assert replace(a.threshold, value=0, by_class=(), spread=0) == replace(
        b.threshold, value=0, by_class=(), spread=0
    )
    values, others = ((t.value, t.spread, *(c.value for c in t.by_class)) for t in (a.threshold, b.threshold))
    assert values == pytest.approx(others, abs=1e-4)  # sums of k cosines
    kept, others_kept = ([(c.n, c.guaranteed) for c in r.threshold.by_class] for r in (a, b))
    assert kept == others_kept


def _joined(a: ImageSet, b: ImageSet) -> ImageSet:
    return ImageSet(torch.cat([a.images[:], b.images[:]]), torch.cat([a.labels, b.labels]), a.class_names)


def test_without_held_out_images_the_training_images_set_it(recognizer: Recognizer) -> None:
    bare = replace(recognizer, calibration=None).recalibrate()
    assert not bare.threshold.held_out
    assert not bare.threshold.promised
    known = bare.enroll("cross", crosses(5))
    trained = torch.cat([left_out(known, label).score for label in range(3)])
    assert known.threshold.value == calibrate(trained, 0.1).value
    assert not known.threshold.promised


def test_per_class_thresholds_stay_per_class(recognizer: Recognizer) -> None:
    each = recognizer.recalibrate(0.3, per_class=True)
    assert each.threshold.per_class
    known = each.enroll("cross", crosses(5)).forget("bar")
    assert known.threshold.per_class
    assert known.threshold.false_reject == 0.3
    assert len(known.threshold.by_class) == 3
    scores = known.scores(known.outputs(crosses(5, seed=8)))
    expected = known.threshold.accepts(scores.score, scores.label)
    assert torch.equal(known.predict(crosses(5, seed=8)).label >= 0, expected)


def test_recalibrating_with_new_images(recognizer: Recognizer) -> None:
    fresh = tiny_images(20, seed=31)
    changed = recognizer.recalibrate(0.05, images=fresh.only([2, 0]))  # some classes, in any order
    assert changed.threshold.n == 40
    assert changed.calibration is not None
    assert sorted(set(changed.calibration.labels.tolist())) == [0, 2]
    assert changed.threshold.promised
    with pytest.raises(UserError, match="class 'cross' of the calibration images is not known"):
        recognizer.recalibrate(images=crosses(3))
    with pytest.raises(UserError, match="each with its class"):
        recognizer.recalibrate(images=fresh.only([0], as_unknown=True))


def test_images_of_the_index_are_noticed(recognizer: Recognizer) -> None:
    with pytest.warns(UserWarning, match="54 of the 72 calibration images seem to be among the images"):
        recognizer.recalibrate(images=tiny_images(24))


@pytest.mark.parametrize("method", ["gradmix", "ce"])
def test_everything_survives_the_file(method: str, tmp_path: Path) -> None:
    made = fit(tiny_images(12), tiny_recipe(method=method, max_steps=2, holdout=0.25, false_reject=0.2))
    if method == "ce":
        with pytest.raises(UserError, match=r"decides by 'mls'.*gradmix calibrate RUN --detector knn"):
            made.enroll("cross", crosses(4))
        made = made.with_detector("knn")
    known = made.enroll("cross", crosses(4)).forget("disc")
    save(known, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    images = tiny_images(4, (*CLASSES, "cross"), seed=2)
    assert torch.equal(loaded.predict(images).score, known.predict(images).score)
    assert torch.equal(loaded.predict(images).label, known.predict(images).label)
    assert loaded.threshold == known.threshold
    assert loaded.enrolled_names == ("cross",)
    assert loaded.forget("cross").threshold == known.forget("cross").threshold
    assert loaded.outputs(images).logits is None  # of the classes it was trained on, not of these


def test_what_cannot_be_done_is_said(recognizer: Recognizer) -> None:
    with pytest.raises(UserError, match="no class can be called 'unknown'"):
        recognizer.enroll("unknown", crosses(2))
    with pytest.raises(UserError, match="a name that can be printed"):
        recognizer.enroll("a\nb", crosses(2))
    with pytest.raises(UserError, match="no images to enroll as 'cross'"):
        recognizer.enroll("cross", crosses(2).select([]))
    with pytest.raises(UserError, match="did you mean 'disc'"):
        recognizer.forget("disk")
    with pytest.raises(UserError, match="'square' is the last class"):
        recognizer.forget("disc").forget("bar").forget("square")


def test_a_model_of_enrolled_classes_only(recognizer: Recognizer) -> None:
    bare = replace(recognizer, calibration=None)
    known = bare.enroll("cross", crosses(6)).enroll("other", tiny_images(6, ("disc",), seed=12))
    for name in CLASSES:
        known = known.forget(name)
    assert known.class_names == known.enrolled_names == ("cross", "other")
    assert known.decision.class_bias == ()
    assert known.threshold.value == calibrate(known.index.leave_one_out().score, 0.1).value


def test_one_image_in_the_index_sets_no_threshold() -> None:
    knn = KNN().fit(Outputs(torch.eye(2)[:1], torch.tensor([0])), 1)
    assert not set_decision(knn, 1, None, None, 0.1).threshold.guaranteed


def test_the_gallery_follows_the_index(recognizer: Recognizer) -> None:
    known = recognizer.enroll("cross", crosses(3)).forget("bar")
    pictures, labels = known.gallery.pictures, known.index.state()["labels"]
    assert pictures is not None
    assert len(pictures) == len(labels)
    assert torch.equal(pictures[labels == 2], crosses(3).images[:])
    assert recognizer.without_pictures().gallery.pictures is None


def test_what_is_evaluated_is_what_decides(recognizer: Recognizer) -> None:
    from gradmix.evaluation import evaluate_open_set

    images, others = tiny_images(8, seed=41), crosses(10, seed=42)
    for model in (recognizer, recognizer.recalibrate(0.3, per_class=True), recognizer.enroll("x", others)):
        result = evaluate_open_set(model, images, others, cache=False)
        accepted = (model.predict(images).label >= 0).double().mean()
        assert result.main["known_accepted"] == pytest.approx(float(accepted))
        assert torch.equal(result.known.score >= result.threshold, model.predict(images).label >= 0)
