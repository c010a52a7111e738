"""scikit-learn's own estimator checks.

They feed rows of numbers, and images are none: to the classifier itself only the checks that need no data
apply (its tags say that it takes no 2-d arrays). For the others a subclass makes a small grey picture of
every row, and must pass them all but those listed with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from gradmix import OpenSetClassifier
from gradmix.data import ImageSet

_ONE_COLUMN_MORE = (
    "expects a column per class of y, or of two classes one in all; here there is one more, for unknown"
)
LEFT_OUT = {
    "check_classifiers_train": _ONE_COLUMN_MORE,
    "check_classifiers_classes": _ONE_COLUMN_MORE,
    "check_decision_proba_consistency": _ONE_COLUMN_MORE,
    "check_classifiers_one_label": "wants that class for every image; a model of one class says unknown, too",
    "check_methods_subset_invariance": "wants 1e-7; convolutions round differently in other batches",
}


class Rows(OpenSetClassifier):
    """Rows of numbers as stripes of grey; a network that is not trained, so that a fit takes no time."""

    def __init__(self, recipe: str = "frozen", *, false_reject: float = 0.5) -> None:
        super().__init__(recipe, false_reject=false_reject)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.three_d_array = tags.input_tags.string = False
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Rows:
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        return super().fit(stripes(X), y)

    def _recipe_fields(self) -> dict[str, Any]:
        small = {"image_size": 8, "channels": 1, "encoder": "resnet8_16", "normalize": "half"}
        return {"holdout": 0.0, "k": 1} | small | super()._recipe_fields()

    def _read_parts(self, X: Any, count: int | None = None) -> Iterator[ImageSet]:
        self._check_fitted()
        rows = stripes(validate_data(self, X, reset=False))
        return super()._read_parts(rows, len(rows))


def stripes(rows: NDArray[np.float64]) -> NDArray[np.uint8]:
    """(N, F) to (N, F, F): each number is the grey of a stripe."""
    grey = (255 / (1 + np.exp(-np.clip(rows, -9, 9)))).round().astype(np.uint8)
    return np.repeat(grey[:, :, None], rows.shape[1], axis=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [OpenSetClassifier(), Rows()],
    expected_failed_checks=lambda estimator: LEFT_OUT if isinstance(estimator, Rows) else {},
)
def test_scikit_learns_checks(estimator: OpenSetClassifier, check: Any) -> None:
    check(estimator)
