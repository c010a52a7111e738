"""The page of an evaluation shows what the evaluation found."""

from __future__ import annotations

import pytest
import torch

from gradmix.data import ImageSet
from gradmix.detection import Scores
from gradmix.evaluation import OpenSetResult, evaluate_open_set
from gradmix.recognition import Recognizer, fit
from gradmix.report import render
from gradmix.report.evaluation_page import (
    _compute_accept_rates,
    _count_confusion,
    _count_outcomes,
    _describe_growth,
    _select_rows,
    evaluation_page,
    make_set_tables,
)
from gradmix.views import ViewSettings
from tests.training.tiny import tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return fit(tiny_images(), tiny_recipe())


@pytest.fixture
def result() -> OpenSetResult:
    """Six known images of two classes, four unknown ones, accepted from 0.5 on."""
    known = Scores(torch.tensor([0.9, 0.8, 0.2, 0.7, 0.6, 0.9]), torch.tensor([0, 0, 0, 1, 0, 1]))
    unknown = Scores(torch.tensor([0.1, 0.6, 0.2, 0.3]), torch.tensor([1, 0, 0, 1]))
    return OpenSetResult({"knn": {}}, known, unknown, torch.tensor([0, 0, 0, 1, 1, 1]), 0.5)


def test_outcomes_count_right_misnamed_and_rejected(result: OpenSetResult) -> None:
    of_known, of_unknown = _count_outcomes(result)
    assert (of_known.right, of_known.misnamed, of_known.count) == pytest.approx((4 / 6, 1 / 6, 6))
    assert (of_unknown.right, of_unknown.count) == pytest.approx((3 / 4, 4))


def test_confusion_has_unknown_as_last_row_and_column(result: OpenSetResult) -> None:
    assert _count_confusion(result, 2).tolist() == [[2, 0, 1], [1, 2, 0], [1, 0, 3]]


def test_accept_rates_are_per_true_class(result: OpenSetResult) -> None:
    names, rates, known = _compute_accept_rates(result, ("a", "b"), ["x", "y", "x", "y"])
    assert names == ["a", "b", "x", "y"]
    assert rates == pytest.approx([2 / 3, 1.0, 0.0, 0.5])
    assert known == [True, True, False, False]


def test_a_jump_of_the_loss_is_explained() -> None:
    assert _describe_growth(ViewSettings(image_size=32)) == ""
    at_once = ViewSettings(image_size=32, start_size=16)
    assert _describe_growth(at_once).startswith("The views grow from 16 to 32 pixels after 50 % of the steps")
    slowly = ViewSettings(image_size=32, start_size=16, grow_after=0.2, grow_until=0.8)
    assert _describe_growth(slowly).startswith(
        "The views grow from 16 to 32 pixels between 20 and 80 % of the steps"
    )


def test_the_page_names_classes_metrics_and_details(recognizer: Recognizer) -> None:
    known: ImageSet = tiny_images(seed=1)
    crosses = tiny_images(classes=("cross",), seed=2)
    unknown = crosses.only([0], as_unknown=True)
    page = evaluation_page(
        evaluate_open_set(recognizer, known, unknown),
        recognizer,
        known,
        unknown,
        [{"step": 1, "loss": 2.0, "lr": 0.1}, {"step": 2, "loss": 1.0, "lr": 0.05}],
        title="Shapes",
        subtitle="crosses are new",
        details={"split": "abc123"},
        unknown_names=["cross"] * len(unknown),
    )
    html = render(page)
    for text in ("Shapes", "crosses are new", "AUROC", "OSCR", "bar", "disc", "square", "cross", "abc123"):
        assert text in html


def test_several_unknown_sets_have_a_column_each_and_their_mean(recognizer: Recognizer) -> None:
    known: ImageSet = tiny_images(seed=1)
    crosses = tiny_images(classes=("cross",), seed=2).only([0], as_unknown=True)
    sets = {"near": crosses.select(torch.arange(5)), "far": crosses.select(torch.arange(5, len(crosses)))}
    result = evaluate_open_set(recognizer, known, sets, detectors=["nno"])
    areas, of_known, of_unknown, macro_f1 = make_set_tables(result)
    assert [row[0] for row in macro_f1.rows] == ["knn"]  # the others have no threshold
    assert areas.headers == ["score", "near", "far", "mean"]
    assert [row[0] for row in areas.rows] == ["knn", "nno"]
    near, far, mean = (float(str(cell)) for cell in areas.rows[0][1:])
    assert mean == pytest.approx((near + far) / 2)
    assert (of_known.heading[:12], of_unknown.heading[:14]) == ("FPR@95 known", "FPR@95 unknown")
    html = render(evaluation_page(result, recognizer, known, list(sets.values()), [], "t", "s", {}))
    for text in (
        "AUROC, by unknown set",
        "near",
        "far",
        "mean of 2 unknown sets",
        "OSCR (= OpenAUC)",
        "All unknown images",
    ):
        assert text in html
    assert make_set_tables(evaluate_open_set(recognizer, known, crosses)) == []


def test_examples_are_found_in_the_set_that_they_are_of() -> None:
    images = tiny_images(each=4)  # 12 images, as sets of 5, 1 and 6
    sets = [images.select(torch.arange(*ends)) for ends in ((0, 5), (5, 6), (6, 12))]
    for rows in ([0, 5, 11], [6, 4, 10]):
        found = _select_rows(sets, torch.tensor(rows))
        assert torch.equal(found.images[:], images.images[torch.tensor(rows)])
        assert found.labels.tolist() == [-1] * 3
