from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score, roc_curve

from gradmix.evaluation import metrics

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("seed", range(5))
def test_agree_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    known, unknown = rng.normal(1, 1, 300).round(1), rng.normal(0, 1, 200).round(1)  # with ties
    scores, is_known = np.concatenate([known, unknown]), np.arange(500) < 300
    close = pytest.approx
    assert metrics.auroc(known, unknown) == close(roc_auc_score(is_known, scores), abs=1e-5)
    assert metrics.aupr_in(known, unknown) == close(average_precision_score(is_known, scores), abs=1e-5)
    assert metrics.aupr_out(known, unknown) == close(average_precision_score(~is_known, -scores), abs=1e-5)
    fpr, tpr, _ = roc_curve(is_known, scores, drop_intermediate=False)
    assert metrics.tnr_at_tpr(known, unknown) == close(1 - fpr[tpr >= 0.95 - 1e-12][0], abs=1e-5)
    assert metrics.fpr_at_known(known, unknown) == close(fpr[tpr >= 0.95 - 1e-12][0], abs=1e-5)
    turned_fpr, caught, _ = roc_curve(~is_known, -scores, drop_intermediate=False)  # unknown is positive
    assert metrics.fpr_at_unknown(known, unknown) == close(turned_fpr[caught >= 0.95 - 1e-12][0], abs=1e-5)
    assert metrics.dtacc(known, unknown) == close(np.max(tpr + 1 - fpr) / 2, abs=1e-5)
    assert metrics.detection_accuracy(known, unknown) == close(
        np.max(300 * tpr + 200 * (1 - fpr)) / 500, abs=1e-5
    )


@pytest.mark.parametrize("seed", range(5))
def test_label_metrics_agree_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    true, predicted = rng.integers(-1, 6, 200), rng.integers(-1, 6, 200)
    assert metrics.macro_f1_open(true, predicted, 6) == pytest.approx(
        f1_score(true, predicted, average="macro")
    )
    assert metrics.closed_set_accuracy(true, predicted) == pytest.approx(accuracy_score(true, predicted))
