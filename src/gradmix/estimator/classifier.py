"""The classifier: parameters, fit, and the answers, in scikit-learn's terms."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from torch import nn

from ..batch.stream import decide_at
from ..data import UNKNOWN, ImageFormat, ImageSet, as_labeled_images, read_targets
from ..detection import UNKNOWN_NAME, control_false_discoveries
from ..errors import UserError
from ..hub_file import HubAddress, parse_hub_address
from ..methods import METHODS
from ..models.backbone import register_backbone
from ..recipe import recipe_names
from ..recognition import Recognizer, fit
from ..recognition.model_file import load_with_notes
from ..recognition.trainable import why_too_few_classes
from ..training import load_recipe
from .display import PredictionTable
from .model_methods import ModelMethods
from .parameters import AUTO, RecipeParameters
from .shares import log_weights, shares_of

UNKNOWN_NUMBER = -1  # where classes are numbers
_OWN_FIELDS = ("detector", "false_reject", "init", "encoder")  # of a recipe, which have a parameter here
_DEFAULT_RECIPE = "small"  # of a file that names none
_SMALLEST_WEIGHT = -1e4  # instead of -inf, which other estimators refuse


class OpenSetClassifier(ModelMethods, ClassifierMixin, RecipeParameters):  # type: ignore[misc]
    """A classifier that names images of the classes it was fitted on and calls all others unknown.

    X may be a folder, a file or a list of files; one image (Pillow's, encoded bytes, an open file) or a list,
    Series or iterator of them, paths among them; uint8 arrays and tensors; an ``ImageSet``, or a torch
    ``Dataset`` of (image, label). Arrays (H, W), (H, W, C) and (C, H, W) are one image, (N, H, W),
    (N, H, W, C) and (N, C, H, W) are N of them (see ``gradmix.data.array_layout``). Of an iterator only a
    part is in memory at a time. Flattened images are refused, and so are addresses (https://…): nothing is
    downloaded. y are class names or whole numbers; folders, image sets and data sets bring their own.
    Rejected images are labelled "unknown" where classes are text, and -1 where they are numbers. Images that
    y labels so are not trained on: they are for ``score``, ``cross_val_score`` and the like.

    Parameters
    ----------
    recipe
        A shipped recipe ("photos", "small", "cpu/cifar10", …) or a YAML file. "auto" is "photos"
        (pre-trained, frozen), "small" (trained from nothing) if a method or a field of the training is given,
        and "frozen" with a backbone.
    method
        One of the project's methods ("gradmix", "ce", "ce+ssl", "moco", …) instead of the recipe's.
    detector
        The score that decides ("knn", "knn:sum", "nno", "msp", "mls", …); None: the recipe's, which is the
        method's own if it says nothing.
    false_reject
        Share of known images that may be called unknown; None: the recipe's.
    per_class
        One threshold for each class that an image may be taken for, rather than one for all.
    init
        A file of published ResNet weights, or hf://owner/name, to start from.
    backbone
        Any ``nn.Module`` as the encoder (timm's, torchvision's, one's own). It is copied, not changed. Or
        the function that makes it ("mine.py:build"), or an image tower of the Hub
        ("hf:facebook/dinov2-small").
    backbone_layer
        Which of its layers gives the features ("avgpool", say); "" as in ``Backbone``.
    overrides
        Fields of the recipe as a dict, such as {"epochs": 5, "image_size": 96}.
    random_state
        Seed of training and hold-out; None: the recipe's.
    **fields
        Fields of the recipe as keywords: ``OpenSetClassifier("small", epochs=5)``. They are parameters like
        the others for ``get_params``, ``set_params`` and ``GridSearchCV``, and go before ``overrides``.

    Attributes
    ----------
    classes_
        The known classes and the unknown label, one per column of ``predict_proba``, **sorted**: tools of
        scikit-learn (``log_loss``, scorers, calibration by temperature) take the columns for sorted without
        looking. So "unknown" is the last of names that come before it in the alphabet, and -1 the first of
        numbers; ``classes_ == unknown_label_`` finds it.
    known_classes_
        The known classes, sorted; later enrolled ones at the end.
    unknown_label_
        What rejected images are called.
    threshold_
        The score from which on an image is known; an array, one per known class, where they differ.
    recognizer_
        The fitted :class:`Recognizer`.
    """

    def __init__(
        self,
        recipe: str = AUTO,
        *,
        method: str | None = None,
        detector: str | None = None,
        false_reject: float | None = None,
        per_class: bool = False,
        init: str | None = None,
        backbone: nn.Module | str | None = None,
        backbone_layer: str = "",
        overrides: Mapping[str, Any] | None = None,
        random_state: int | None = None,
        **fields: Any,
    ) -> None:
        self.recipe = recipe
        self.method = method
        self.detector = detector
        self.false_reject = false_reject
        self.per_class = per_class
        self.init = init
        self.backbone = backbone
        self.backbone_layer = backbone_layer
        self.overrides = overrides
        self.random_state = random_state
        self._set_fields(fields)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on labelled images, index them and set the threshold."""
        backbone = self._make_backbone()
        with register_backbone(backbone):
            recipe = self._make_recipe(backbone)
            images, classes = as_labeled_images(
                X, y, ImageFormat(recipe.views.image_size, recipe.views.channels)
            )
            unknown = unknown_label(classes)
            if y is None and unknown in classes.tolist():
                raise UserError(
                    f"{unknown!r} stands for unknown and cannot be a class; leave these images out"
                )
            images, classes = _leave_out(unknown, images, classes)
            if not len(classes):
                raise UserError("no image of a known class; recognition needs one or more known classes")
            if reason := why_too_few_classes(images.class_counts(), recipe):
                raise UserError(reason)
            recognizer = fit(images, recipe)
        self.known_classes_, self.unknown_label_ = classes, unknown
        self.recognizer_ = recognizer.recalibrate(per_class=True) if self.per_class else recognizer
        return self._warn_if_nothing_is_rejected()

    @property
    def classes_(self) -> NDArray[Any]:
        """The known classes and the unknown label, sorted."""
        return self._labels()[self._order()]

    @property
    def threshold_(self) -> float | NDArray[np.float64]:
        """The score from which on an image is known; one per known class where they differ."""
        threshold = self._fitted_attribute("recognizer_").threshold
        if not threshold.by_class:
            return float(threshold.value)
        return np.asarray([of_class.value for of_class in threshold.by_class])

    def predict(self, X: Any, *, false_reject: float | None = None, fdr: float | None = None) -> Any:
        """Return (N,) class labels, ``unknown_label_`` where rejected.

        ``false_reject``: reject this share of known images, this time, instead of the one of ``fit``.
        ``fdr``: call so many unknown that of these at most this share is known, on average over X as a whole.
        """
        recognizer = decide_at(self._check_fitted(), false_reject, fdr)
        if fdr is None:
            return self._predict(X, recognizer=recognizer)
        found = [recognizer.predict(images) for images in self._read_parts(X)]
        unknown = control_false_discoveries(torch.cat([part.p_value for part in found]), fdr)
        nearest = torch.cat([part.nearest for part in found])
        return np.asarray(self._labels()[nearest.where(~unknown, UNKNOWN).numpy()])

    def p_value(self, X: Any) -> NDArray[np.float64]:
        """Return (N,) in (0, 1]: the share of known images that look as unusual; unknown is what is small.

        ``p_value(X) <= false_reject`` is where ``predict(X, false_reject=…)`` says unknown.
        """
        recognizer = self._check_fitted()
        return self._join(X, lambda images: recognizer.predict(images).p_value.numpy())

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (N, C + 1) shares that sum to 1, one column per entry of ``classes_``.

        p_c ∝ exp((d_c − max d) / T) and p_unknown ∝ exp((t − s) / σ), with class scores d (similarities, or
        logits where they decide), score s, threshold t, σ the standard deviation of known scores, and
        T = 0.1·k for similarities and 1 for logits. So the largest share is always that
        of ``predict``, and a score at the threshold makes unknown as likely as the nearest class. They are
        not calibrated probabilities: how often unknown images occur is not in the training data. With
        labelled unknown images, ``CalibratedClassifierCV`` makes them so.
        """
        return shares_of(self._log_weights(X))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return (N, C + 1), one column per entry of ``classes_``: the largest is the answer of ``predict``.

        These are the logarithms of what ``predict_proba`` makes shares of.
        """
        return self._log_weights(X).clip(min=_SMALLEST_WEIGHT)

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return (N,) scores: higher is more likely known; from ``threshold_`` on, an image is."""
        recognizer = self._check_fitted()
        return self._join(X, lambda images: recognizer.predict(images).score.numpy())

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy; ``unknown_label_`` in y is right if the image is rejected.

        Of a folder that is divided, its ``test`` part counts.
        """
        if y is None:
            splits = ("test", "val", "train")
            X, classes = as_labeled_images(X, None, self._check_fitted().image_format, splits)
            y = classes[X.labels.numpy()]
        y = read_targets(y)
        return float(accuracy_score(y, self._predict(X, len(y)), sample_weight=sample_weight))

    def predict_table(self, X: Any) -> PredictionTable:
        """Return the answers with scores, thresholds and pictures; a notebook shows them as a table."""
        images = self._read_images(X)
        found = self._check_fitted().predict(images)
        label, nearest = (self._labels()[number.numpy()] for number in (found.label, found.nearest))
        numbers = (found.score.numpy(), found.threshold.numpy(), found.p_value.numpy())
        return PredictionTable(images, label, nearest, *numbers)

    @classmethod
    def load(cls, path: str | Path, backbone: nn.Module | str | None = None) -> Self:
        """Load a fitted classifier that :meth:`save` or ``gradmix train`` wrote, or one at hf://owner/name."""
        recognizer, notes = load_with_notes(path, backbone)
        flat = dict(recognizer.recipe)
        called = {str(label): label for label in notes.get("classes", ())}  # numbers are text in the file
        method = str(flat.pop("method"))
        recipe = notes.get("recipe") if notes.get("recipe") in recipe_names() else _DEFAULT_RECIPE
        # A method from the user's own file may not be there, and a model opens without it.
        same = load_recipe(str(recipe), {"method": method}).flat() if method in METHODS else {}
        loaded = cls(
            recipe=str(recipe),
            method=method,
            detector=recognizer.decision.detector.name,
            false_reject=recognizer.threshold.false_reject,
            per_class=recognizer.threshold.per_class,
            backbone=backbone,
            overrides={
                k: v for k, v in flat.items() if k not in _OWN_FIELDS and (k not in same or same[k] != v)
            }
            | ({} if backbone is not None else {"encoder": flat["encoder"]}),
        )
        loaded.recognizer_ = recognizer
        loaded.known_classes_ = np.asarray([called.get(name, name) for name in recognizer.class_names])
        loaded.unknown_label_ = unknown_label(loaded.known_classes_)
        return loaded

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, revision: str | None = None, backbone: nn.Module | str | None = None
    ) -> Self:
        """Load a classifier from a folder, or from the Hub: "owner/name", or hf://owner/name."""
        address = None if Path(name).exists() else parse_hub_address(name)
        if address is None and not Path(name).exists() and _looks_like_repo(str(name)):
            address = HubAddress(str(name))
        if address is None:
            if revision is not None:
                raise UserError(f"a revision is of a model on the Hub, and {name} is a path here")
            return cls.load(name, backbone)
        return cls.load(str(HubAddress(address.repo, revision or address.revision)), backbone)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the call that makes it and, once it is fitted, what it knows and how it decides."""
        text = super().__repr__(N_CHAR_MAX)
        if "recognizer_" not in vars(self):
            return text
        names = [str(name) for name in self.known_classes_]
        some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        threshold = self.recognizer_.threshold
        each = " (per class)" if threshold.by_class else ""
        bound = f"threshold {threshold.value:.4g}{each}" if threshold.guaranteed else "rejects nothing"
        detector = self.recognizer_.decision.detector.name
        return f"{text}  # knows {len(names)} classes ({some}); decides by {detector}, {bound}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # that would be flattened images
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.target_tags.required = False  # folders bring their labels
        return tags

    def _predict(
        self, X: Any, count: int | None = None, recognizer: Recognizer | None = None
    ) -> NDArray[Any]:
        recognizer = recognizer or self._check_fitted()
        labels = self._labels()  # -1 is the last one
        return self._join(X, lambda images: labels[recognizer.predict(images).label.numpy()], count)

    def _log_weights(self, X: Any) -> NDArray[np.float64]:
        """Return (N, C + 1), one column per entry of ``classes_``."""
        recognizer = self._check_fitted()
        order = self._order()
        return self._join(X, lambda images: log_weights(recognizer, recognizer.outputs(images))[:, order])

    def _join(
        self, X: Any, answer: Callable[[ImageSet], NDArray[Any]], count: int | None = None
    ) -> NDArray[Any]:
        """Return the answers for all images, asked part by part."""
        return np.concatenate([answer(images) for images in self._read_parts(X, count)])

    def _labels(self) -> NDArray[Any]:
        """Return what the recognizer's labels 0 … C − 1 and -1 are called here."""
        known = self._fitted_attribute("known_classes_")
        return np.asarray([*known.tolist(), self.unknown_label_])

    def _order(self) -> NDArray[np.int64]:
        """Return the columns' order: that of ``classes_``, in numbers of :meth:`_labels`."""
        return np.asarray(np.argsort(self._labels(), kind="stable"))

    def _fitted_attribute(self, name: str) -> Any:
        if name not in vars(self):  # AttributeError, so that hasattr(clf, "classes_") is False before fit
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return vars(self)[name]


def unknown_label(classes: NDArray[Any]) -> Any:
    """Return the label of rejected images for such classes.

    >>> unknown_label(np.array(["cat", "dog"])), unknown_label(np.array([3, 5]))
    ('unknown', -1)
    """
    return UNKNOWN_NAME if classes.dtype.kind in "UO" else UNKNOWN_NUMBER


def _leave_out(unknown: Any, images: ImageSet, classes: NDArray[Any]) -> tuple[ImageSet, NDArray[Any]]:
    """Return the images of known classes, and these; warn where -1 may be meant for a class."""
    known = [label for label, name in enumerate(classes.tolist()) if name != unknown]
    if len(known) == len(classes):
        return images, classes
    kept = images.only(known)
    if len(kept) and unknown == UNKNOWN_NUMBER:
        warnings.warn(
            f"{len(images) - len(kept)} images are labelled {unknown!r}, which stands for unknown: they are "
            "not trained on",
            stacklevel=3,
        )
    return kept, classes[known]


def _looks_like_repo(name: str) -> bool:
    return name.count("/") == 1 and all(part and not part.startswith(".") for part in name.split("/"))
