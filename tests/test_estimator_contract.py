"""scikit-learn's contract, asked of its real tools: classes and columns, parameters, calibration, copies."""

from __future__ import annotations

import io
import warnings
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss, make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from gradmix import OpenSetClassifier
from gradmix.errors import UserError
from gradmix.methods import METHODS
from gradmix.recipe import field_names
from tests.test_estimator import FROZEN, Foreign, arrays, quick
from tests.training.tiny import CLASSES, SIDE, tiny_images

pytestmark = pytest.mark.filterwarnings("ignore:recipe frozen without trained weights")


def open_set(each: int = 16) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Images of the three classes and of a fourth, which is called unknown."""
    pictures, names = arrays(each)
    crosses = tiny_images(each, ("cross",)).images[:].permute(0, 2, 3, 1).numpy()
    return np.concatenate([pictures, crosses]), np.concatenate([names, ["unknown"] * each])


@pytest.fixture(scope="module")
def fitted() -> OpenSetClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quick().fit(*arrays(16))


def rename(names: dict[str, Any]) -> tuple[OpenSetClassifier, NDArray[Any]]:
    """A classifier of other labels, and the labels of :func:`open_set`."""
    _, y = open_set()
    labels = np.asarray([names[name] for name in y])
    return quick().fit(arrays(16)[0], labels[:48]), labels


NUMBERS = {"bar": 7, "disc": 3, "square": 20, "unknown": -1}
BEYOND = {"bar": "zebra", "disc": "ant", "square": "vole", "unknown": "unknown"}


# Classes and columns


def test_classes_are_those_of_the_columns(fitted: OpenSetClassifier) -> None:
    X, _ = open_set()
    shares = fitted.predict_proba(X)
    assert fitted.classes_.tolist() == [*CLASSES, "unknown"]
    assert fitted.known_classes_.tolist() == list(CLASSES)
    assert shares.shape == fitted.decision_function(X).shape == (64, len(fitted.classes_))
    first = dict(zip(fitted.classes_, shares[0], strict=True))
    assert max(first, key=lambda name: first[name]) == fitted.predict(X)[0]
    assert not hasattr(fitted, "n_features_in_")
    fresh = quick()
    assert not hasattr(fresh, "classes_")
    assert not hasattr(fresh, "threshold_")


@pytest.mark.parametrize("names", [dict.fromkeys(()), NUMBERS, BEYOND], ids=["text", "numbers", "beyond"])
def test_log_loss_reads_the_columns_right(fitted: OpenSetClassifier, names: dict[str, Any]) -> None:
    """For labels that sort before, around and behind the unknown one; compared with the sum written out."""
    X, y = open_set()
    clf, labels = rename(names) if names else (fitted, y)
    assert clf.classes_.tolist() == sorted(set(labels.tolist()))
    shares = clf.predict_proba(X)
    column = [clf.classes_.tolist().index(label) for label in labels.tolist()]
    expected = -np.mean(np.log(shares[np.arange(64), column]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn warns of labels that are not sorted
        assert log_loss(labels, shares, labels=clf.classes_) == pytest.approx(expected)
        known = labels != clf.unknown_label_
        assert log_loss(labels[known], shares[known], labels=clf.classes_) > 0
    of_unknown = shares[:, clf.classes_ == clf.unknown_label_].sum(1)
    assert np.array_equal(clf.classes_[shares.argmax(1)], clf.predict(X))
    assert of_unknown[~known].mean() > of_unknown[known].mean()
    ranked = roc_auc_score(labels, shares, multi_class="ovr", labels=clf.classes_)
    assert ranked > 0.8


def test_enrolled_classes_take_their_place(fitted: OpenSetClassifier) -> None:
    clf = quick().fit(*arrays(16))
    crosses = tiny_images(6, ("cross",))
    clf.enroll(crosses, name="zebra").enroll(tiny_images(6, ("cross",), seed=1), name="ant")
    assert clf.known_classes_.tolist() == [*CLASSES, "zebra", "ant"]
    assert clf.classes_.tolist() == ["ant", *CLASSES, "unknown", "zebra"]
    X, _ = open_set()
    assert np.array_equal(clf.classes_[clf.predict_proba(X).argmax(1)], clf.predict(X))
    assert isinstance(clf.threshold_, np.ndarray)
    assert clf.threshold_.shape == (5,)


def test_a_score_at_the_threshold_is_known_in_every_way() -> None:
    """Held-out images score exactly the threshold; numbers have unknown in the first column."""
    X, y = arrays(16)
    clf = quick().fit(X, [NUMBERS[name] for name in y])
    at = clf.score_samples(X) == clf.threshold_
    assert at.any()
    assert -1 not in clf.predict(X)[at]
    assert np.array_equal(clf.classes_[clf.predict_proba(X).argmax(1)], clf.predict(X))
    assert np.array_equal(clf.classes_[clf.decision_function(X).argmax(1)], clf.predict(X))


def test_what_rejects_nothing_has_finite_decisions() -> None:
    with pytest.warns(UserWarning, match="cannot bound false rejects"):
        clf = quick(false_reject=0.01).fit(*arrays())
    assert repr(clf).endswith("decides by knn, rejects nothing")
    decision = clf.decision_function(open_set()[0])
    assert np.isfinite(decision).all()
    assert (decision[:, -1] < -100).all()


# Parameters


def test_fields_of_the_recipe_are_parameters() -> None:
    clf = OpenSetClassifier("frozen", image_size=SIDE, encoder="resnet8_16", holdout=0.25, normalize="half")
    assert clf.get_params()["image_size"] == SIDE
    copy = clone(clf)
    assert copy.get_params() == clf.get_params()
    assert clone(copy.set_params(image_size=8, k=1)).get_params()["k"] == 1
    assert clf.image_size == SIDE
    assert copy.set_params(false_reject=0.3).fit(*arrays()).recognizer_.recipe["image_size"] == 8
    assert copy.recognizer_.recipe["k"] == 1
    both = OpenSetClassifier("frozen", overrides={"k": 2, "image_size": 8}, k=1)
    assert both._recipe_fields() == {"k": 1, "image_size": 8}
    nested = make_pipeline(FunctionTransformer(), clf).set_params(opensetclassifier__epochs=3)
    assert nested.get_params()["opensetclassifier__epochs"] == 3
    assert OpenSetClassifier("frozen", seed=4, random_state=5)._recipe_fields()["seed"] == 5


def test_no_field_is_called_like_a_method_or_attribute() -> None:
    fields = {name for method in METHODS for name in field_names(method)}
    taken = set(dir(OpenSetClassifier)) | {"recognizer_", "known_classes_", "unknown_label_"}
    assert not fields & taken


def test_misspelt_fields_are_refused_at_once() -> None:
    with pytest.raises(UserError, match="no parameter or recipe field 'epoch'; did you mean 'epochs'"):
        OpenSetClassifier("small", epoch=5)
    with pytest.raises(UserError, match="'false_rejects'; did you mean 'false_reject'"):
        OpenSetClassifier("small", false_rejects=0.1)
    with pytest.raises(
        UserError, match=r"no parameter or recipe field 'qqqqqq'; there are backbone, .*recipe"
    ):
        OpenSetClassifier(qqqqqq=1)
    clf = quick()
    before = clf.get_params()
    with pytest.raises(UserError, match="'image_siz'; did you mean 'image_size'"):
        clf.set_params(false_reject=0.9, image_siz=8)
    assert clf.get_params() == before  # nothing half set
    with pytest.raises(UserError, match=r"no recipe field \(method frozen\) 'lam'"):  # of another method
        quick(lam=0.2).fit(*arrays())
    own = OpenSetClassifier("small", method="./mine.py", strength=3)  # known when the file is read
    assert own.get_params()["strength"] == 3


def test_grid_search_over_fields_with_unknown_images() -> None:
    X, y = open_set()
    search = GridSearchCV(
        OpenSetClassifier("frozen", **FROZEN),
        {"k": [1, 3], "false_reject": [0.2, 0.5]},
        cv=2,
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_ == {"false_reject": 0.2, "k": 1}
    assert search.best_score_ > 0.7
    assert search.best_estimator_.recognizer_.recipe["k"] == search.best_params_["k"]
    assert search.best_estimator_.classes_.tolist() == [*CLASSES, "unknown"]


# Unknown images among the labelled ones


def test_unknown_images_are_not_trained_on(fitted: OpenSetClassifier) -> None:
    X, y = open_set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="recipe frozen without")
        clf = quick().fit(X, y)
    assert clf.known_classes_.tolist() == list(CLASSES)
    assert np.array_equal(clf.predict_proba(X), fitted.predict_proba(X))
    assert clf.score(X, y) == np.mean(clf.predict(X) == y)
    numbers = np.asarray([NUMBERS[name] for name in y])
    with pytest.warns(UserWarning, match="16 images are labelled -1, which stands for unknown"):
        clf = quick().fit(X, numbers)
    assert clf.known_classes_.tolist() == [3, 7, 20]


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "roc_auc_ovr"])
def test_cross_validation_counts_rejections(scoring: str) -> None:
    X, y = open_set()
    scores = cross_val_score(quick(), X, y, cv=2, scoring=scoring, error_score="raise")
    assert np.isfinite(scores).all()
    if scoring != "neg_log_loss":
        assert (scores > 0.6).all()
    own = make_scorer(lambda truth, answer: np.mean((answer == "unknown") == (truth == "unknown")))
    assert (cross_val_score(quick(), X, y, cv=2, scoring=own, error_score="raise") > 0.6).all()


def test_cross_validated_answers() -> None:
    X, y = open_set()
    answers = cross_val_predict(quick(), X, y, cv=2)
    assert set(answers) <= {*CLASSES, "unknown"}
    assert np.mean(answers == y) > 0.6


def test_lists_of_pictures_go_through_cross_validation() -> None:
    X, y = arrays(8)
    pictures = [Image.fromarray(pixels) for pixels in X]
    expected = cross_val_score(quick(false_reject=0.5), X, y, cv=2, error_score="raise")
    assert np.array_equal(
        cross_val_score(quick(false_reject=0.5), pictures, y, cv=2, error_score="raise"), expected
    )


# Calibration


@pytest.mark.parametrize("names", [dict.fromkeys(()), NUMBERS, BEYOND], ids=["text", "numbers", "beyond"])
@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_a_fitted_classifier_is_calibrated(
    fitted: OpenSetClassifier, method: str, names: dict[str, Any]
) -> None:
    if method == "temperature" and names is NUMBERS:
        pytest.skip("scikit-learn takes numbers for columns there: wrong for its own classifiers, too")
    X, y = open_set()
    clf, labels = rename(names) if names else (fitted, y)
    calibrated = CalibratedClassifierCV(FrozenEstimator(clf), method=method).fit(X, labels)
    assert np.array_equal(calibrated.classes_, clf.classes_)
    shares = calibrated.predict_proba(X)
    np.testing.assert_allclose(shares.sum(1), 1)
    before = log_loss(labels, clf.predict_proba(X), labels=clf.classes_)
    assert log_loss(labels, shares, labels=clf.classes_) < before
    assert calibrated.score(X, labels) > 0.9


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibration_in_folds(method: str) -> None:
    X, y = open_set()
    calibrated = CalibratedClassifierCV(quick(), method=method, cv=2).fit(X, y)
    assert calibrated.classes_.tolist() == [*CLASSES, "unknown"]
    assert calibrated.score(X, y) > 0.9


def test_calibration_needs_unknown_images() -> None:
    with pytest.raises(ValueError, match="previously unseen labels"):  # scikit-learn's own words
        CalibratedClassifierCV(quick(), cv=2).fit(*arrays(16))


# Copies


def test_copies_of_a_fitted_one(fitted: OpenSetClassifier) -> None:
    X, _ = open_set()
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    again = joblib.load(file)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.get_params() == fitted.get_params()
    assert again.classes_.tolist() == fitted.classes_.tolist()
    assert repr(again) == repr(fitted)


# Words


def test_the_short_text(fitted: OpenSetClassifier, tmp_path: Any) -> None:
    assert repr(OpenSetClassifier()) == "OpenSetClassifier()"
    assert repr(OpenSetClassifier("small", epochs=5)) == "OpenSetClassifier(recipe='small', epochs=5)"
    assert repr(OpenSetClassifier("frozen", k=1)) == "OpenSetClassifier(recipe='frozen', k=1)"
    assert "backbone=Foreign(…)" in repr(OpenSetClassifier("frozen", backbone=Foreign()))
    text = repr(fitted)
    assert text.startswith("OpenSetClassifier(recipe='frozen', false_reject=0.2, overrides={")
    assert f"knows 3 classes (bar, disc, square); decides by knn, threshold {fitted.threshold_:.4g}" in text
    loaded = OpenSetClassifier.load(fitted.save(tmp_path))
    assert loaded.recipe == "frozen"
    assert len(loaded.overrides) <= 6  # what differs from the recipe, not all of eighty fields
    assert len(repr(loaded)) < 300
    torch.manual_seed(0)
    X, y = open_set()
    assert np.array_equal(
        clone(loaded).fit(X, y).predict_proba(X), fitted.predict_proba(X)
    )  # nothing was lost
    nested = repr(make_pipeline(FunctionTransformer(), fitted))
    assert "OpenSetClassifier(false_reject=0.2" in nested
    assert "bar" in fitted._repr_mimebundle_()["text/plain"]
    assert "resnet8_16" in fitted._repr_html_()
