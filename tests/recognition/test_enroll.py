"""Classes come and go without training; the threshold keeps its promise to those that stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradmix.data import ImageSet
from gradmix.detection import KNN, Outputs, Scores, calibrate
from gradmix.errors import UserError
from gradmix.recognition import Recognizer, fit, load, save
from gradmix.recognition.calibration import known_threshold
from gradmix.recognition.head_start import head_starts, left_out_similarity, scores_of, scores_with_head_start
from tests.training.tiny import CLASSES, tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return fit(tiny_images(24), tiny_recipe(epochs=15, holdout=0.25, false_reject=0.1))


def crosses(n: int, seed: int = 3) -> ImageSet:
    return tiny_images(n, ("cross",), seed)


def test_an_enrolled_class_is_recognised(recognizer: Recognizer) -> None:
    known = recognizer.enrolled("cross", crosses(8))
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
    known = recognizer.enrolled("cross", crosses(count))
    test = crosses(6, seed=4)
    z = torch.nn.functional.normalize(known.outputs(test).features, dim=1)
    enrolled = torch.nn.functional.normalize(known.outputs(crosses(count)).features, dim=1)
    k = known.knn.k
    expected = (z @ enrolled.T).topk(min(k, count), dim=1).values.mean(1) * k
    torch.testing.assert_close(known.knn.class_similarity(z)[:, 3], expected, rtol=1e-4, atol=1e-4)


def test_the_trained_classes_keep_their_promise(recognizer: Recognizer) -> None:
    """Their threshold is the conformal one of the held-out images against the new index."""
    known = recognizer.enrolled("cross", crosses(6))
    assert recognizer.calibration is not None
    expected = calibrate(known.scores(recognizer.calibration).score, 0.1)
    assert known.threshold.value == expected.value
    assert known.threshold.promised
    values = [c.value for c in known.threshold.by_class]
    assert values[:3] == [expected.value] * 3
    assert values[3] <= expected.value


def left_out(known: Recognizer, label: int) -> Scores:
    return scores_of(known.knn, left_out_similarity(known.knn, known.knn.state(), label), known.head_start)


def test_the_threshold_of_an_enrolled_class_is_its_images_own(recognizer: Recognizer) -> None:
    known = recognizer.enrolled("cross", crosses(6))
    found = left_out(known, 3)
    own = found.score[found.label == 3]
    lowest = calibrate(own, max(0.1, 1 / (len(own) + 1))).value
    assert known.threshold.by_class[3].value == min(known.threshold.value, lowest)
    single = recognizer.enrolled("cross", crosses(1))
    assert single.threshold.by_class[3].value == single.threshold.value


def test_leaving_out_within_a_class_is_leaving_out(recognizer: Recognizer) -> None:
    known = replace(recognizer.enrolled("cross", crosses(6)), head_start=())
    labels = known.knn.state()["labels"]
    whole = known.knn.leave_one_out()
    for label in (0, 3):
        found = left_out(known, label)
        torch.testing.assert_close(found.score, whole.score[labels == label], rtol=1e-5, atol=1e-6)
        assert torch.equal(found.label, whole.label[labels == label])


def test_a_head_start_takes_no_more_than_its_share(recognizer: Recognizer) -> None:
    known = recognizer.enrolled("cross", crosses(6))
    held_out = known.calibration
    assert held_out is not None
    assert known.head_start[:3] == (0.0, 0.0, 0.0)
    assert known.head_start[3] >= 0
    assert not (known.scores(held_out).label == 3).any()  # 2 % of 18 images is none
    for share, most in ((0.2, 3), (0.5, 9)):
        start = head_starts(known.knn, held_out, [3], share)
        taken = scores_with_head_start(known.knn, held_out.features, start).label == 3
        assert int(taken.sum()) <= most
        assert start[3] >= known.head_start[3]
        typical = left_out_similarity(known.knn, known.knn.state(), 3)[:, 3].median()
        d = known.knn.class_similarity(held_out.features).double()
        own = d.gather(1, held_out.labels[:, None]).median()
        assert start[3] <= max(0.0, float(own - typical))


def test_a_head_start_lets_few_images_win() -> None:
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
    start = head_starts(knn, held_out, [2], share=0.1)
    new = around(0.6, 0.6, 0.3, 0, n=200)
    plain, lifted = (scores_with_head_start(knn, new, b).label == 2 for b in ((), start))
    assert start[2] > 0
    assert float(lifted.float().mean()) > 3 * float(plain.float().mean())
    old = torch.cat([around(1, 0, 0, 0, n=1000), around(0, 1, 0, 0, n=1000)])
    assert float((scores_with_head_start(knn, old, start).label == 2).float().mean()) < 0.17


def test_forgetting_undoes_enrolling(recognizer: Recognizer) -> None:
    back = recognizer.enrolled("cross", crosses(5)).forgotten("cross")
    images = tiny_images(5, (*CLASSES, "cross"), seed=8)
    assert back.class_names == CLASSES
    assert back.enrolled_names == ()
    assert back.threshold == recognizer.threshold
    assert torch.equal(back.predict(images).score, recognizer.predict(images).score)
    assert back.gallery.sources == recognizer.gallery.sources
    assert back.gallery.pictures is not None
    assert recognizer.gallery.pictures is not None
    assert torch.equal(back.gallery.pictures, recognizer.gallery.pictures)


def test_forgetting_a_trained_class_leaves_nothing_of_it(recognizer: Recognizer) -> None:
    without = recognizer.forgotten("disc")
    assert without.class_names == ("bar", "square")
    assert len(without.knn.state()["labels"]) == 36
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
    known = recognizer.enrolled("cross", crosses(2))
    with pytest.raises(UserError, match=r"knows a class 'cross' already; add the images to it with --add"):
        known.enrolled("cross", crosses(2, seed=5))
    more = known.enrolled("cross", crosses(2, seed=5), add=True)
    at_once = recognizer.enrolled("cross", _joined(crosses(2), crosses(2, seed=5)))
    assert more.class_names == at_once.class_names
    assert more.threshold == at_once.threshold
    assert more.enrolled_names == ("cross",)
    trained = recognizer.enrolled("bar", tiny_images(2, ("bar",), seed=7), add=True)
    assert trained.enrolled_names == ()
    assert trained.class_names == CLASSES


def _joined(a: ImageSet, b: ImageSet) -> ImageSet:
    return ImageSet(torch.cat([a.images[:], b.images[:]]), torch.cat([a.labels, b.labels]), a.class_names)


def test_without_held_out_images_the_training_images_set_it(recognizer: Recognizer) -> None:
    bare = replace(recognizer, calibration=None).recalibrated()
    assert not bare.threshold.held_out
    assert not bare.threshold.promised
    known = bare.enrolled("cross", crosses(5))
    trained = torch.cat([left_out(known, label).score for label in range(3)])
    assert known.threshold.value == calibrate(trained, 0.1).value
    assert not known.threshold.promised


def test_per_class_thresholds_stay_per_class(recognizer: Recognizer) -> None:
    each = recognizer.recalibrated(0.3, per_class=True)
    assert each.threshold.per_class
    known = each.enrolled("cross", crosses(5)).forgotten("bar")
    assert known.threshold.per_class
    assert known.threshold.false_reject == 0.3
    assert len(known.threshold.by_class) == 3
    scores = known.scores(known.outputs(crosses(5, seed=8)))
    expected = known.threshold.accepts(scores.score, scores.label)
    assert torch.equal(known.predict(crosses(5, seed=8)).label >= 0, expected)


def test_recalibrating_with_new_images(recognizer: Recognizer) -> None:
    fresh = tiny_images(20, seed=31)
    changed = recognizer.recalibrated(0.05, images=fresh.only([2, 0]))  # some classes, in any order
    assert changed.threshold.n == 40
    assert changed.calibration is not None
    assert sorted(set(changed.calibration.labels.tolist())) == [0, 2]
    assert changed.threshold.promised
    with pytest.raises(UserError, match="class 'cross' of the calibration images is not known"):
        recognizer.recalibrated(images=crosses(3))
    with pytest.raises(UserError, match="each with its class"):
        recognizer.recalibrated(images=fresh.only([0], as_unknown=True))


def test_images_of_the_index_are_noticed(recognizer: Recognizer) -> None:
    with pytest.warns(UserWarning, match="54 of the 72 calibration images seem to be among the images"):
        recognizer.recalibrated(images=tiny_images(24))


@pytest.mark.parametrize("method", ["gradmix", "ce"])
def test_everything_survives_the_file(method: str, tmp_path: Path) -> None:
    made = fit(tiny_images(12), tiny_recipe(method=method, max_steps=2, holdout=0.25, false_reject=0.2))
    known = made.enrolled("cross", crosses(4)).forgotten("disc")
    save(known, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    images = tiny_images(4, (*CLASSES, "cross"), seed=2)
    assert torch.equal(loaded.predict(images).score, known.predict(images).score)
    assert torch.equal(loaded.predict(images).label, known.predict(images).label)
    assert loaded.threshold == known.threshold
    assert loaded.enrolled_names == ("cross",)
    assert loaded.forgotten("cross").threshold == known.forgotten("cross").threshold
    assert loaded.outputs(images).logits is None  # of the classes it was trained on, not of these


def test_what_cannot_be_done_is_said(recognizer: Recognizer) -> None:
    with pytest.raises(UserError, match="no class can be called 'unknown'"):
        recognizer.enrolled("unknown", crosses(2))
    with pytest.raises(UserError, match="a name that can be printed"):
        recognizer.enrolled("a\nb", crosses(2))
    with pytest.raises(UserError, match="no images to enroll as 'cross'"):
        recognizer.enrolled("cross", crosses(2).select([]))
    with pytest.raises(UserError, match="did you mean 'disc'"):
        recognizer.forgotten("disk")
    with pytest.raises(UserError, match="'square' is the last class"):
        recognizer.forgotten("disc").forgotten("bar").forgotten("square")


def test_one_image_in_the_index_sets_no_threshold() -> None:
    knn = KNN().fit(Outputs(torch.eye(2)[:1], torch.tensor([0])), 1)
    assert not known_threshold(knn, 1, None, 0.1).guaranteed


def test_the_gallery_follows_the_index(recognizer: Recognizer) -> None:
    known = recognizer.enrolled("cross", crosses(3)).forgotten("bar")
    pictures, labels = known.gallery.pictures, known.knn.state()["labels"]
    assert pictures is not None
    assert len(pictures) == len(labels)
    assert torch.equal(pictures[labels == 2], crosses(3).images[:])
    assert recognizer.without_pictures().gallery.pictures is None


def test_what_is_evaluated_is_what_decides(recognizer: Recognizer) -> None:
    from gradmix.evaluation import evaluate_open_set

    images, others = tiny_images(8, seed=41), crosses(10, seed=42)
    for model in (recognizer, recognizer.recalibrated(0.3, per_class=True), recognizer.enrolled("x", others)):
        result = evaluate_open_set(model, images, others, cache=False)
        accepted = (model.predict(images).label >= 0).double().mean()
        assert result.main["known_accepted"] == pytest.approx(float(accepted))
        assert torch.equal(result.known.score >= result.threshold, model.predict(images).label >= 0)
