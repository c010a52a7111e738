"""Which class is which logit: the trap of weights that somebody else trained, and how to notice it.

A network trained on the classes (7, 2, 5) may have its logits in this order or in the sorted one. Nothing in
its weights tells; in the wrong order its accuracy is near chance, and its AUROC is as it was.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_SUSPICIOUS_GAIN = 0.2  # of the accuracy, in another order; few images of many classes reach less by chance


def accuracy_in_order(true_labels: ArrayLike, predicted: ArrayLike, order: ArrayLike) -> float:
    """Return the accuracy (a share of 1) if logit j were of class order[j].

    >>> accuracy_in_order([0, 1, 1], [1, 0, 0], order=[1, 0])
    1.0
    """
    return float(np.mean(np.asarray(order)[np.asarray(predicted)] == np.asarray(true_labels)))


def best_order(true_labels: ArrayLike, predicted: ArrayLike, num_classes: int) -> list[int]:
    """Return the order of the classes under which the most images are named right.

    >>> best_order([0, 1, 1, 2], [1, 0, 0, 2], num_classes=3)
    [1, 0, 2]
    """
    from scipy.optimize import linear_sum_assignment

    true, guess = np.asarray(true_labels, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    cells = np.bincount(guess * num_classes + true, minlength=num_classes**2)
    _, classes = linear_sum_assignment(cells.reshape(num_classes, num_classes), maximize=True)
    return [int(c) for c in classes]


def suspect_order(true_labels: ArrayLike, predicted: ArrayLike, num_classes: int) -> float | None:
    """Return the accuracy of the best order, if it is so much higher that this one must be wrong.

    >>> suspect_order([0, 0, 1, 1], [1, 1, 0, 0], num_classes=2)
    1.0
    >>> suspect_order([0, 0, 1, 1], [0, 1, 1, 1], num_classes=2) is None
    True
    """
    now = accuracy_in_order(true_labels, predicted, np.arange(num_classes))
    best = accuracy_in_order(true_labels, predicted, best_order(true_labels, predicted, num_classes))
    return best if best >= 2 * now and best >= now + _SUSPICIOUS_GAIN else None
