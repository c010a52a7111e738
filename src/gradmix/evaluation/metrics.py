"""How well known and unknown images are told apart, and known ones named.

Known = positive, a higher score = more likely known, and an image is accepted iff score >= threshold.
Every metric is a fraction in [0, 1] and depends on the scores' order alone; ties are exact.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError

if TYPE_CHECKING:
    from ..detection import Scores

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def auroc(known: ArrayLike, unknown: ArrayLike) -> float:
    """Return P(known score > unknown score) + ½ P(equal): the area under TPR against FPR.

    >>> auroc([3, 2], [2, 1])
    0.875
    """
    from sklearn.metrics import roc_auc_score  # takes a second to import

    ranks, is_known = _rank(known, unknown)
    return float(roc_auc_score(is_known, ranks))


def aupr_in(known: ArrayLike, unknown: ArrayLike) -> float:
    """Average precision Σ (R_i − R_{i−1}) P_i with known as the positive class."""
    from sklearn.metrics import average_precision_score

    ranks, is_known = _rank(known, unknown)
    return float(average_precision_score(is_known, ranks))


def aupr_out(known: ArrayLike, unknown: ArrayLike) -> float:
    """Average precision with unknown as the positive class (and the scores turned round)."""
    from sklearn.metrics import average_precision_score

    ranks, is_known = _rank(known, unknown)
    return float(average_precision_score(~is_known, -ranks))


def tnr_at_tpr(known: ArrayLike, unknown: ArrayLike, tpr: float = 0.95) -> float:
    """Return TN / (TN + FP) at the largest threshold that accepts at least ``tpr`` of the known images.

    >>> tnr_at_tpr([4, 3, 2, 1], [2.5, 0], tpr=0.5)
    1.0
    """
    accepted, false_accepted = _count_accepted(known, unknown)
    at = int(np.argmax(accepted >= _share_of(accepted[-1], tpr, "tpr")))
    return float(1 - false_accepted[at] / false_accepted[-1])


def fpr_at_known(known: ArrayLike, unknown: ArrayLike, share: float = 0.95) -> float:
    """Return the share of unknown images accepted where at least ``share`` of the known are: 1 − TNR.

    One of two things called FPR@95: here known is the positive class, as in ODIN and ARPL.

    >>> fpr_at_known([4, 3, 2, 1], [2.5, 0], share=0.75)
    0.5
    """
    return 1 - tnr_at_tpr(known, unknown, share)


def fpr_at_unknown(known: ArrayLike, unknown: ArrayLike, share: float = 0.95) -> float:
    """Return the share of known images rejected where at least ``share`` of the unknown are.

    The other thing called FPR@95: unknown is the positive class, as in OpenOOD. The threshold is the smallest
    that rejects so many.

    >>> fpr_at_unknown([4, 3, 2, 1], [2.5, 0], share=0.75)
    0.5
    """
    accepted, false_accepted = _count_accepted(known, unknown)
    caught = false_accepted[-1] - false_accepted
    at = int(np.flatnonzero(caught >= _share_of(false_accepted[-1], share, "share"))[-1])
    return float(1 - accepted[at] / accepted[-1])


def threshold_at_known(known: ArrayLike, share: float = 0.95) -> float:
    """Return the largest threshold that accepts at least ``share`` of the known images.

    >>> threshold_at_known([4, 3, 2, 1], share=0.75)
    2.0
    """
    scores = np.sort(_scores(known, "known"))[::-1]
    return float(scores[_share_of(len(scores), share, "share") - 1])


def dtacc(known: ArrayLike, unknown: ArrayLike) -> float:
    """Return the maximum over thresholds of (TPR + TNR) / 2: known and unknown weigh the same."""
    accepted, false_accepted = _count_accepted(known, unknown)
    balanced = (accepted / accepted[-1] + 1 - false_accepted / false_accepted[-1]) / 2
    return float(balanced.max())


def detection_accuracy(known: ArrayLike, unknown: ArrayLike) -> float:
    """Return the maximum over thresholds of (TP + TN) / all: the paper's printed formula."""
    accepted, false_accepted = _count_accepted(known, unknown)
    right = accepted + false_accepted[-1] - false_accepted
    return float(right.max() / (accepted[-1] + false_accepted[-1]))


def oscr(known: ArrayLike, known_correct: ArrayLike, unknown: ArrayLike) -> float:
    """Return the area under CCR against FPR (Dhamija et al. 2018), over all thresholds t, by trapezoids.

    CCR(t) = share of known images accepted *and* given the right class; FPR(t) = share of unknown accepted.
    With every class right it equals the AUROC; with any it is P(known image named right and scored above an
    unknown one) + ½ P(right, equal scores), which Wang et al. (2022) call OpenAUC.

    >>> oscr([3, 2], [True, False], [1, 0])
    0.5
    """
    known_scores, unknown_scores = _scores(known, "known"), _scores(unknown, "unknown")
    correct = _flat(known_correct, "known_correct").astype(bool)
    if len(correct) != len(known_scores):
        raise UserError(f"{len(known_scores)} known scores but {len(correct)} entries in known_correct")
    thresholds = np.unique(np.concatenate([known_scores, unknown_scores]))[::-1]
    ccr = _count_from(known_scores[correct], thresholds) / len(known_scores)
    fpr = _count_from(unknown_scores, thresholds) / len(unknown_scores)
    return float(np.sum(np.diff(fpr) * (ccr[1:] + ccr[:-1]) / 2))


def closed_set_accuracy(true_labels: ArrayLike, predicted: ArrayLike) -> float:
    """Share of known images given the right class, nothing rejected."""
    true, guess = _label_pair(true_labels, predicted)
    return float(np.mean(true == guess))


def macro_f1_open(true_labels: ArrayLike, predicted: ArrayLike, num_classes: int) -> float:
    """Return the mean of F1 = 2 TP / (2 TP + FP + FN) over the known classes and "unknown" (-1).

    Over those of the C + 1 that occur among the true or predicted labels: the F1 of the others is 0/0.

    >>> macro_f1_open([0, 1, -1, -1], [0, -1, -1, -1], num_classes=2)
    0.6
    """
    true, guess = _label_pair(true_labels, predicted)
    for labels in (true, guess):
        if labels.min() < -1 or labels.max() >= num_classes:
            culprit = labels.min() if labels.min() < -1 else labels.max()
            raise UserError(f"label {culprit} is neither -1 (unknown) nor one of 0 to {num_classes - 1}")
    hits = np.bincount(true[true == guess] + 1, minlength=num_classes + 1)
    both = np.bincount(true + 1, minlength=num_classes + 1) + np.bincount(
        guess + 1, minlength=num_classes + 1
    )
    occurs = both > 0
    return float(np.mean(2 * hits[occurs] / both[occurs]))


def roc_points(known: ArrayLike, unknown: ArrayLike, at_most: int = 500) -> tuple[Floats, Floats]:
    """Return (FPR, TPR) from (0, 0) to (1, 1) for plotting: the exact corners, or ``at_most`` of them."""
    if at_most < 2:
        raise UserError(f"a curve needs at least 2 points, not {at_most}")
    accepted, false_accepted = _count_accepted(known, unknown)
    # Points in the middle of a straight run add nothing. Integers, so the cross product is exact.
    step_up, step_right = np.diff(accepted), np.diff(false_accepted)
    turns = step_up[:-1] * step_right[1:] != step_up[1:] * step_right[:-1]
    keep = np.flatnonzero(np.concatenate([[True], turns, [True]]))
    fpr, tpr = false_accepted[keep] / false_accepted[-1], accepted[keep] / accepted[-1]
    if len(keep) > at_most:
        # Evenly along the curve (in city-block length, which is 2 for every ROC curve).
        chosen = np.unique(np.searchsorted(fpr + tpr, np.linspace(0, 2, at_most)).clip(max=len(fpr) - 1))
        fpr, tpr = fpr[chosen], tpr[chosen]
    return fpr, tpr


def open_set_metrics(
    known: Scores, known_labels: ArrayLike, unknown: Scores, threshold: float | None = None
) -> dict[str, float]:
    """Compute all of the above for one detector; with a ``threshold`` also what happens at it.

    ``known`` and ``unknown`` are a detector's ``Scores`` (anything with ``score`` and ``label`` arrays);
    ``known_labels`` (N,) are the true classes of the known images.
    """
    known_score, unknown_score = _scores(known.score, "known"), _scores(unknown.score, "unknown")
    true, guess = _label_pair(known_labels, known.label)
    if len(true) != len(known_score):
        raise UserError(f"{len(known_score)} known scores but {len(true)} known labels")
    result = {
        "auroc": auroc(known_score, unknown_score),
        "oscr": oscr(known_score, true == guess, unknown_score),
        "aupr_in": aupr_in(known_score, unknown_score),
        "aupr_out": aupr_out(known_score, unknown_score),
        "tnr_at_tpr95": tnr_at_tpr(known_score, unknown_score),
        "fpr_at_95_known": fpr_at_known(known_score, unknown_score),
        "fpr_at_95_unknown": fpr_at_unknown(known_score, unknown_score),
        "dtacc": dtacc(known_score, unknown_score),
        "detection_accuracy": detection_accuracy(known_score, unknown_score),
        "closed_set_accuracy": closed_set_accuracy(true, guess),
    }
    if threshold is not None:
        score = np.concatenate([known_score, unknown_score])
        accepted = score >= threshold
        all_guess = np.concatenate([guess, _flat(unknown.label, "unknown labels").astype(np.int64)])
        all_true = np.concatenate([true, np.full(len(unknown_score), -1, dtype=np.int64)])
        decided = np.where(accepted, all_guess, -1)
        result["macro_f1"] = macro_f1_open(all_true, decided, int(max(true.max(), all_guess.max())) + 1)
        result["known_accepted"] = float(np.mean(accepted[: len(known_score)]))
        result["unknown_rejected"] = float(np.mean(~accepted[len(known_score) :]))
    return result


def _share_of(count: int, share: float, what: str) -> int:
    """Return how many of ``count`` images are at least that share of them."""
    if not 0 < share <= 1:
        raise UserError(f"{what} must lie in (0, 1], not {share}")
    return math.ceil(share * count - 1e-9)  # 0.55 * 100 is 55.00000000000001 in floating point


def _count_accepted(known: ArrayLike, unknown: ArrayLike) -> tuple[Ints, Ints]:
    """Count TP and FP at every distinct threshold, from "nothing accepted" to "all accepted"."""
    known_scores, unknown_scores = _scores(known, "known"), _scores(unknown, "unknown")
    thresholds = np.unique(np.concatenate([known_scores, unknown_scores]))[::-1]
    return _count_from(known_scores, thresholds), _count_from(unknown_scores, thresholds)


def _count_from(scores: Floats, thresholds: Floats) -> Ints:
    """Count the scores >= each of the descending thresholds; a leading 0 for the one above all."""
    counts = len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")
    return np.concatenate([[0], counts]).astype(np.int64)


def _rank(known: ArrayLike, unknown: ArrayLike) -> tuple[Ints, NDArray[np.bool_]]:
    """Return dense ranks of all scores, and which are known; ranks keep order and make infinities safe."""
    known_scores, unknown_scores = _scores(known, "known"), _scores(unknown, "unknown")
    _, ranks = np.unique(np.concatenate([known_scores, unknown_scores]), return_inverse=True)
    is_known = np.arange(len(ranks)) < len(known_scores)
    return ranks.astype(np.int64), is_known


def _scores(values: ArrayLike, what: str) -> Floats:
    scores = _flat(values, f"{what} scores").astype(np.float64)
    if bool(np.isnan(scores).any()):
        raise UserError(f"the {what} scores contain NaN (first at {int(np.isnan(scores).argmax())})")
    return scores


def _label_pair(true_labels: ArrayLike, predicted: ArrayLike) -> tuple[Ints, Ints]:
    true = _flat(true_labels, "true labels").astype(np.int64)
    guess = _flat(predicted, "predicted labels").astype(np.int64)
    if len(true) != len(guess):
        raise UserError(f"{len(true)} true labels but {len(guess)} predicted ones")
    return true, guess


def _flat(values: ArrayLike, what: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or len(array) == 0:
        raise UserError(f"{what} must be a non-empty list of numbers, not of shape {array.shape}")
    return array
