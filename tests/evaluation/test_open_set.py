"""The open-set evaluation of a recognizer: right images to right detectors, one pass each."""

from __future__ import annotations

import pytest
import torch

from gradmix.data import ImageSet
from gradmix.detection import Scores
from gradmix.errors import UserError
from gradmix.evaluation import applicable_detectors, auroc, evaluate_open_set
from gradmix.evaluation.open_set import accepted
from gradmix.recognition import Recognizer, fit
from tests.training.tiny import tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def known() -> ImageSet:
    return tiny_images(seed=1)


@pytest.fixture(scope="module")
def unknown() -> ImageSet:
    return tiny_images(classes=("cross",), seed=2).only([0], as_unknown=True)


@pytest.fixture(scope="module")
def contrastive() -> Recognizer:
    return fit(tiny_images(), tiny_recipe())


def test_metrics_are_those_of_the_recognizers_own_scores(
    contrastive: Recognizer, known: ImageSet, unknown: ImageSet
) -> None:
    result = evaluate_open_set(contrastive, known, unknown)
    on_known, on_unknown = contrastive.predict(known), contrastive.predict(unknown)
    assert result.main["auroc"] == auroc(on_known.score.numpy(), on_unknown.score.numpy())
    right = (on_known.nearest == known.labels).double().mean().item()
    assert result.main["closed_set_accuracy"] == pytest.approx(right)
    rejected = (on_unknown.label == -1).double().mean().item()
    assert result.main["unknown_rejected"] == pytest.approx(rejected)


def test_a_network_without_classifier_has_no_logit_scores(
    contrastive: Recognizer, known: ImageSet, unknown: ImageSet
) -> None:
    possible = applicable_detectors(contrastive)
    assert not {"mls", "msp", "entropy", "energy", "openmax", "osrci", "placeholder", "mcm"} & set(possible)
    result = evaluate_open_set(contrastive, known, unknown, tiny_images(), possible)
    assert list(result.metrics) == possible
    assert {"knn", "nno"} <= set(possible)


def test_a_classifier_has_all_scores(known: ImageSet, unknown: ImageSet) -> None:
    recognizer = fit(tiny_images(), tiny_recipe(method="ce"))
    # The model holds z of its training images, not h: what learns from h is left out.
    of_logits = ["mls", "nno", "msp", "entropy", "energy", "openmax", "osrci", "gen", "klm", "rmds"]
    of_logits += ["ash", "scale"]
    possible = applicable_detectors(recognizer)
    assert [name for name in possible if not name.startswith("knn")] == of_logits
    learning = [
        "she",
        "vim",
        "residual",
        "neco",
        "fdbd",
        "nci",
        "nnguide",
        "relation",
        "react",
        "vra",
        "dice",
    ]
    with_images = applicable_detectors(recognizer, tiny_images)  # a function: called, as some want the images
    assert set(with_images) - set(possible) == set(learning)
    result = evaluate_open_set(recognizer, known, unknown, tiny_images(), with_images)
    assert list(result.metrics) == with_images
    assert all(0 <= value <= 1 for values in result.metrics.values() for value in values.values())


def test_detectors_that_learn_do_so_from_what_the_model_holds(
    contrastive: Recognizer, known: ImageSet, unknown: ImageSet
) -> None:
    from_model = evaluate_open_set(contrastive, known, unknown, detectors=["nno"])
    assert "nno" in from_model.metrics
    with pytest.raises(UserError, match=r"'mls' needs logits.*models trained with ce"):
        evaluate_open_set(contrastive, known, unknown, detectors=["mls"])
    with pytest.raises(UserError, match="did you mean 'nno'"):
        evaluate_open_set(contrastive, known, unknown, detectors=["noo"])


def test_below_the_threshold_is_unknown() -> None:
    scores = Scores(torch.tensor([0.1, 0.5, 0.9]), torch.tensor([2, 1, 0]))
    assert accepted(scores, 0.5).tolist() == [-1, 1, 0]


def test_the_same_index_with_another_normalisation(
    contrastive: Recognizer, known: ImageSet, unknown: ImageSet
) -> None:
    own = contrastive.index.normalize
    result = evaluate_open_set(contrastive, known, unknown, detectors=["knn:none", f"knn:{own}"])
    assert list(result.metrics) == ["knn", "knn:none", f"knn:{own}"]
    assert result.metrics[f"knn:{own}"]["auroc"] == result.main["auroc"]
    assert result.metrics["knn:none"]["closed_set_accuracy"] == result.main["closed_set_accuracy"]
    plain = contrastive.index.class_similarity(contrastive.outputs(known).features).amax(1)
    foreign = contrastive.index.class_similarity(contrastive.outputs(unknown).features).amax(1)
    assert result.metrics["knn:none"]["auroc"] == auroc(plain.numpy(), foreign.numpy())


def test_several_unknown_sets_are_scored_one_by_one(
    contrastive: Recognizer, known: ImageSet, unknown: ImageSet
) -> None:
    half = {"first": unknown.select(torch.arange(4)), "rest": unknown.select(torch.arange(4, len(unknown)))}
    result = evaluate_open_set(contrastive, known, half, detectors=["nno"])
    assert list(result.sets) == ["first", "rest"]
    for name, images in half.items():
        alone = evaluate_open_set(contrastive, known, images, detectors=["nno"])
        assert alone.sets == {}
        for detector in ("knn", "nno"):
            assert result.sets[name][detector] == pytest.approx(alone.metrics[detector], abs=1e-9)
    of_sets = [found["nno"]["auroc"] for found in result.sets.values()]
    assert result.metrics["nno"]["auroc"] == pytest.approx(sum(of_sets) / 2)
    together = evaluate_open_set(contrastive, known, unknown)
    torch.testing.assert_close(result.unknown.score, together.unknown.score, rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="at least one set of unknown"):
        evaluate_open_set(contrastive, known, {})
