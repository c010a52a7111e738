from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmix.detection import Scores
from gradmix.errors import UserError
from gradmix.evaluation import metrics
from tests.reference import metrics as reference

# Few distinct values, so that ties are the rule.
coarse = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)
TWO_SIDED = ["auroc", "aupr_in", "aupr_out", "tnr_at_tpr", "dtacc", "detection_accuracy"]


@settings(max_examples=150, deadline=None)
@given(coarse, coarse, st.data())
def test_equal_the_loops(known, unknown, data):
    minus_known, minus_unknown = [-s for s in known], [-s for s in unknown]
    tpr = data.draw(st.sampled_from([0.1, 0.5, 0.95, 1.0]))
    correct = data.draw(st.lists(st.booleans(), min_size=len(known), max_size=len(known)))
    close = pytest.approx
    assert metrics.auroc(known, unknown) == close(reference.auroc(known, unknown))
    assert metrics.aupr_in(known, unknown) == close(reference.average_precision(known, unknown))
    assert metrics.aupr_out(known, unknown) == close(reference.average_precision(minus_unknown, minus_known))
    assert metrics.tnr_at_tpr(known, unknown, tpr) == close(reference.tnr_at_tpr(known, unknown, tpr))
    assert metrics.fpr_at_known(known, unknown, tpr) == close(1 - reference.tnr_at_tpr(known, unknown, tpr))
    assert metrics.fpr_at_unknown(known, unknown, tpr) == close(reference.fpr_at_unknown(known, unknown, tpr))
    assert metrics.dtacc(known, unknown) == close(reference.dtacc(known, unknown))
    assert metrics.detection_accuracy(known, unknown) == close(reference.detection_accuracy(known, unknown))
    assert metrics.oscr(known, correct, unknown) == close(reference.oscr(known, correct, unknown))


@settings(max_examples=60, deadline=None)
@given(coarse, coarse, st.sampled_from([np.exp, np.arctan, lambda s: s**3 - 7, lambda s: 1e-30 * s]))
def test_only_the_order_of_scores_matters(known, unknown, monotone):
    moved_known, moved_unknown = monotone(np.array(known)), monotone(np.array(unknown))
    for name in TWO_SIDED:
        metric = getattr(metrics, name)
        assert metric(moved_known, moved_unknown) == pytest.approx(metric(known, unknown))
    correct = np.arange(len(known)) % 2 == 0
    assert metrics.oscr(moved_known, correct, moved_unknown) == pytest.approx(
        metrics.oscr(known, correct, unknown)
    )


@settings(max_examples=60, deadline=None)
@given(coarse, coarse)
def test_relations_between_metrics(known, unknown):
    area = metrics.auroc(known, unknown)
    assert metrics.oscr(known, np.ones(len(known), bool), unknown) == pytest.approx(area)
    assert metrics.oscr(known, np.zeros(len(known), bool), unknown) == 0
    assert metrics.auroc(unknown, known) == pytest.approx(1 - area)
    fpr, tpr = metrics.roc_points(known, unknown)
    assert np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2) == pytest.approx(area)
    assert metrics.dtacc(known, unknown) >= 0.5


def test_all_equal_says_nothing():
    same = [1.0] * 5
    assert metrics.auroc(same, same) == 0.5
    assert metrics.oscr(same, [True] * 5, same) == 0.5
    assert metrics.tnr_at_tpr(same, same) == 0
    assert metrics.dtacc(same, same) == 0.5


def test_perfect_separation_infinities_included():
    known, unknown = [2.0, 3.0, np.inf], [-np.inf, 1.0]
    for name in TWO_SIDED:
        assert getattr(metrics, name)(known, unknown) == 1


def test_tnr_at_95_by_hand():
    known = np.arange(1, 21)  # 95 % of 20 is 19: the threshold is 2
    assert metrics.tnr_at_tpr(known, [0, 1, 1.5, 2, 2.5]) == pytest.approx(3 / 5)


def test_the_two_fpr_at_95_by_hand():
    """They can be far apart on one pair of sets: what is positive decides where the threshold lies."""
    known = [10] * 4 + [5] * 91 + [0] * 5  # 95 of 100 are accepted from 5 on
    unknown = [7] * 6 + [6] * 47 + [1] * 47  # of which 53; to catch 95 of 100, 7 must be rejected, too
    assert metrics.fpr_at_known(known, unknown) == pytest.approx(0.53)
    assert metrics.fpr_at_unknown(known, unknown) == pytest.approx(0.96)
    assert metrics.threshold_at_known(known) == 5
    assert metrics.fpr_at_known(known, unknown) == pytest.approx(1 - metrics.tnr_at_tpr(known, unknown))


@settings(max_examples=60, deadline=None)
@given(coarse, coarse, st.sampled_from([0.1, 0.5, 0.95, 1.0]))
def test_either_fpr_is_the_other_with_the_sets_exchanged(known, unknown, share):
    turned = [-s for s in unknown], [-s for s in known]
    assert metrics.fpr_at_unknown(known, unknown, share) == pytest.approx(
        metrics.fpr_at_known(*turned, share)
    )
    t = metrics.threshold_at_known(known, share)
    assert metrics.fpr_at_known(known, unknown, share) == pytest.approx(np.mean(np.array(unknown) >= t))


@pytest.mark.parametrize("percent", range(1, 101))
def test_a_level_that_is_a_whole_number_of_images_needs_just_these(percent):
    """Of 100 images 55 % are 55, though 0.55 * 100 is more than that in floating point."""
    known = np.arange(100, 0, -1)  # the threshold is the score of the last one needed, 101 - percent
    unknown = 100.5 - np.arange(100)  # one just below each known score
    assert metrics.tnr_at_tpr(known, unknown, percent / 100) == pytest.approx(1 - percent / 100)


def test_detection_accuracy_weighs_images_and_dtacc_kinds():
    known, unknown = [1.0] * 9 + [0.0], [1.0]
    assert metrics.detection_accuracy(known, unknown) == pytest.approx(10 / 11)
    assert metrics.dtacc(known, unknown) == pytest.approx(0.5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.data())
def test_macro_f1_equals_the_loop(num_classes, data):
    label = st.integers(-1, num_classes - 1)
    pairs = data.draw(st.lists(st.tuples(label, label), min_size=1, max_size=15))
    true, predicted = zip(*pairs, strict=True)
    assert metrics.macro_f1_open(true, predicted, num_classes) == pytest.approx(
        reference.macro_f1(true, predicted, num_classes)
    )


def test_roc_points_are_thinned_but_keep_their_ends():
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(1, 1, 4000), rng.normal(0, 1, 3000)
    fpr, tpr = metrics.roc_points(known, unknown, at_most=100)
    assert len(fpr) <= 100
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(fpr) >= 0).all()
    assert (np.diff(tpr) >= 0).all()
    area = np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2)
    assert area == pytest.approx(metrics.auroc(known, unknown), abs=1e-3)


def test_open_set_metrics_gathers_them():
    known = Scores(torch.tensor([4.0, 3.0, 2.0, 0.5]), torch.tensor([0, 1, 1, 0]))
    unknown = Scores(torch.tensor([1.0, 2.5]), torch.tensor([1, 0]))
    found = metrics.open_set_metrics(known, torch.tensor([0, 1, 0, 0]), unknown, threshold=2.0)
    assert found["closed_set_accuracy"] == 0.75
    assert found["known_accepted"] == 0.75
    assert found["unknown_rejected"] == 0.5
    assert found["macro_f1"] == pytest.approx(
        reference.macro_f1([0, 1, 0, 0, -1, -1], [0, 1, 1, -1, -1, 0], 2)
    )
    assert found["auroc"] == metrics.auroc(known.score, unknown.score)
    assert found["fpr_at_95_known"] == 1 - found["tnr_at_tpr95"] == 1.0
    assert found["fpr_at_95_unknown"] == 0.5
    assert found["oscr"] == metrics.oscr(known.score, [True, True, False, True], unknown.score)
    assert all(0 <= value <= 1 for value in found.values())
    without = metrics.open_set_metrics(known, torch.tensor([0, 1, 0, 0]), unknown)
    assert set(found) - set(without) == {"macro_f1", "known_accepted", "unknown_rejected"}


def test_accepting_everything_is_allowed():
    known, unknown = Scores(torch.ones(2), torch.tensor([0, 1])), Scores(torch.zeros(2), torch.tensor([0, 0]))
    found = metrics.open_set_metrics(known, [0, 1], unknown, threshold=-np.inf)
    assert (found["known_accepted"], found["unknown_rejected"]) == (1, 0)


@pytest.mark.parametrize("name", TWO_SIDED)
def test_empty_and_nan_are_refused(name):
    metric = getattr(metrics, name)
    with pytest.raises(UserError, match="known scores must be a non-empty"):
        metric([], [1.0])
    with pytest.raises(UserError, match="unknown scores must be a non-empty"):
        metric([1.0], [])
    with pytest.raises(UserError, match=r"unknown scores contain NaN \(first at 1\)"):
        metric([1.0], [0.0, np.nan])


def test_other_mistakes_are_named():
    with pytest.raises(UserError, match="2 known scores but 1 entries"):
        metrics.oscr([1.0, 2.0], [True], [0.0])
    with pytest.raises(UserError, match="3 true labels but 2"):
        metrics.closed_set_accuracy([0, 1, 2], [0, 1])
    with pytest.raises(UserError, match="label 5 is neither"):
        metrics.macro_f1_open([0, 5], [0, 0], 2)
    with pytest.raises(UserError, match="tpr must lie"):
        metrics.tnr_at_tpr([1.0], [0.0], tpr=95)
    with pytest.raises(UserError, match="share must lie"):
        metrics.fpr_at_unknown([1.0], [0.0], share=0)
    with pytest.raises(UserError, match="share must lie"):
        metrics.threshold_at_known([1.0], share=95)
    with pytest.raises(UserError, match="at least 2 points"):
        metrics.roc_points([1.0], [0.0], at_most=1)


def test_importing_the_metrics_does_not_import_sklearn():
    code = "import sys, gradmix.evaluation.metrics, gradmix.detection; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
