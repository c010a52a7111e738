"""OpenSetClassifier: from a folder of images to predictions, as a scikit-learn estimator.

``OpenSetClassifier("small", false_reject=0.05).fit("photos/").predict("new/")`` gives class names, and
"unknown" where rejected.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .data import ImageFormat, ImageSet, as_images, as_labeled_images
from .detection import KNN, UNKNOWN_NAME
from .detection.outputs import clamp_to_finite
from .errors import UserError
from .hub_file import MODEL_FILE
from .models.backbone import BACKBONE, Backbone, register_backbone
from .recognition import Explanation, Recognizer, fit, save
from .recognition.calibration import rejects_nothing
from .recognition.model_file import load_with_notes
from .training import Recipe, load_recipe, make_recipe

UNKNOWN_NUMBER = -1  # where classes are numbers
_OWN_FIELDS = ("detector", "false_reject", "init", "encoder")  # of a recipe, which have a parameter here


class OpenSetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that names images of the classes it was fitted on and calls all others unknown.

    X may be a folder, a file or a list of files, uint8 arrays (N, H, W), (N, H, W, C) or (N, C, H, W), an
    ``ImageSet``, or a torch ``Dataset`` of (image, label). Flattened images are refused. y are class names or
    whole numbers; folders, image sets and data sets bring their own. Rejected images are labelled
    "unknown" where classes are text, and -1 where they are numbers; neither may be a class.

    Parameters
    ----------
    recipe
        A shipped recipe ("small", "cpu/cifar10", …), a YAML file, or "frozen", which trains nothing.
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
        Any ``nn.Module`` as the encoder (timm's, torchvision's, one's own). It is copied, not changed.
    backbone_layer
        Which of its layers gives the features ("avgpool", say); "" as in ``Backbone``.
    overrides
        Any other field of the recipe, such as {"epochs": 5, "image_size": 96}.
    random_state
        Seed of training and hold-out; None: the recipe's.

    Attributes
    ----------
    classes_
        The known classes, sorted (later enrolled ones at the end).
    unknown_label_
        What rejected images are called.
    recognizer_
        The fitted :class:`Recognizer`.
    """

    def __init__(
        self,
        recipe: str = "small",
        *,
        method: str | None = None,
        detector: str | None = None,
        false_reject: float | None = None,
        per_class: bool = False,
        init: str | None = None,
        backbone: nn.Module | None = None,
        backbone_layer: str = "",
        overrides: Mapping[str, Any] | None = None,
        random_state: int | None = None,
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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on labelled images, index them and set the threshold."""
        backbone = self._make_backbone()
        with register_backbone(backbone):
            recipe = self._make_recipe(backbone)
            images, classes = as_labeled_images(
                X, y, ImageFormat(recipe.views.image_size, recipe.views.channels)
            )
            if len(classes) < 2:
                raise UserError(f"only one class ({classes[0]}); recognition needs two or more known classes")
            unknown = unknown_label(classes)
            if unknown in classes.tolist():
                raise UserError(
                    f"{unknown!r} stands for unknown and cannot be a class; leave these images out"
                )
            recognizer = fit(images, recipe)
        self.classes_, self.unknown_label_ = classes, unknown
        self.recognizer_ = recognizer.recalibrate(per_class=True) if self.per_class else recognizer
        return self._warn_if_nothing_is_rejected()

    def predict(self, X: Any) -> NDArray[Any]:
        """Return (N,) class labels, ``unknown_label_`` where rejected."""
        label = self._check_fitted().predict(self._read_images(X)).label
        answers: NDArray[Any] = np.asarray([*self.classes_.tolist(), self.unknown_label_])
        return np.asarray(answers[label.numpy()])  # -1 is the last one

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (N, C + 1) shares that sum to 1: one column per class, and the last one for unknown.

        p_c ∝ exp((d_c − max d) / T) and p_unknown ∝ exp((t − s) / σ), with class scores d (similarities, or
        logits where they decide), score s, threshold t, σ the standard deviation of known scores, and
        T = 0.1·k for similarities and 1 for logits. So the largest share is always that
        of ``predict``, and a score at the threshold makes unknown as likely as the nearest class. They are
        not calibrated probabilities: how often unknown images occur is not in the training data.
        """
        r = self._check_fitted()
        outputs = r.outputs(self._read_images(X))
        d, found = r.decision.class_scores(outputs), r.decision.decide(outputs)
        detector = r.decision.detector
        scale = detector.k * detector.temperature if isinstance(detector, KNN) else 1.0
        classes = ((d - d.amax(1, keepdim=True)) / scale).exp()
        margin = found.score - found.threshold
        rejected = (-margin / max(r.threshold.spread, 1e-9)).clamp(max=50).exp()
        weights = np.column_stack([classes.numpy(), rejected.numpy()])
        return np.asarray(weights / weights.sum(1, keepdims=True), dtype=np.float64)

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return (N,) scores: higher is more likely known."""
        return np.asarray(self._check_fitted().predict(self._read_images(X)).score.numpy())

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return (N,) score minus threshold: negative where ``predict`` says unknown."""
        r = self._check_fitted()
        scores, threshold = r.decision.margins(r.outputs(self._read_images(X)))
        return np.asarray(clamp_to_finite(scores.score - threshold).numpy())

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy; ``unknown_label_`` in y is right if the image is rejected."""
        if y is None:
            X, classes = as_labeled_images(X, None, self._check_fitted().image_format)
            y = classes[X.labels.numpy()]
        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))

    def explain(self, X: Any, classes: int = 3, neighbours: int = 3) -> list[Explanation]:
        """Explain why each image was named or rejected; ``gradmix.report`` draws it."""
        return self._check_fitted().explain(self._read_images(X), classes, neighbours)

    def enroll(self, X: Any, *, name: Any, add: bool = False) -> Self:
        """Learn class ``name`` from one image or more, without training."""
        if (self.unknown_label_ == UNKNOWN_NAME) != isinstance(name, str) or name == self.unknown_label_:
            kind = "text" if self.unknown_label_ == UNKNOWN_NAME else "a number"
            raise UserError(
                f"a class of this model is {kind} other than {self.unknown_label_!r}, not {name!r}"
            )
        self.recognizer_ = self._check_fitted().enroll(self._to_class_name(name), self._read_images(X), add)
        if len(self.recognizer_.class_names) > len(self.classes_):
            self.classes_ = np.asarray([*self.classes_.tolist(), name])
        return self

    def forget(self, name: Any) -> Self:
        """Remove class ``name``."""
        known, text = self._check_fitted(), self._to_class_name(name)
        self.recognizer_ = known.forget(text)
        # By position: 1 and "1" are one class to the recognizer, but not equal.
        self.classes_ = np.delete(self.classes_, known.class_names.index(text))
        return self._warn_if_nothing_is_rejected()

    def save(self, path: str | Path) -> Path:
        """Write the model to a ``.safetensors`` file, or into a folder; ``gradmix predict`` reads it too."""
        file = Path(path)
        if file.suffix != ".safetensors":
            file.mkdir(parents=True, exist_ok=True)
            file /= MODEL_FILE
        save(self._check_fitted(), file, notes={"classes": self.classes_.tolist()})
        return file

    @classmethod
    def load(cls, path: str | Path, backbone: nn.Module | None = None) -> Self:
        """Load a fitted classifier that :meth:`save` or ``gradmix train`` wrote."""
        recognizer, notes = load_with_notes(path, backbone)
        flat = dict(recognizer.recipe)
        called = {str(label): label for label in notes.get("classes", ())}  # numbers are text in the file
        loaded = cls(
            method=str(flat.pop("method")),
            detector=recognizer.decision.detector.name,
            false_reject=recognizer.threshold.false_reject,
            per_class=recognizer.threshold.per_class,
            backbone=backbone,
            overrides={k: v for k, v in flat.items() if k not in _OWN_FIELDS}
            | ({} if backbone is not None else {"encoder": flat["encoder"]}),
        )
        loaded.recognizer_ = recognizer
        loaded.classes_ = np.asarray([called.get(name, name) for name in recognizer.class_names])
        loaded.unknown_label_ = unknown_label(loaded.classes_)
        return loaded

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # that would be flattened images
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.target_tags.required = False  # folders bring their labels
        return tags

    def _make_backbone(self) -> Backbone | None:
        if self.backbone is None:
            return None
        if self.init:
            raise UserError("init and backbone: a backbone brings its own weights; give one of the two")
        values = load_recipe(self.recipe).flat() | self._recipe_fields()
        return Backbone(
            self.backbone, self.backbone_layer, int(values["channels"]), int(values["image_size"])
        )

    def _recipe_fields(self) -> dict[str, Any]:
        """Return the parameters that replace fields of the recipe."""
        fields = dict(self.overrides or {})
        named = {
            "detector": self.detector,
            "false_reject": self.false_reject,
            "init": self.init,
            "seed": self.random_state,
        }
        return fields | {name: value for name, value in named.items() if value is not None}

    def _make_recipe(self, backbone: Backbone | None) -> Recipe:
        fields = self._recipe_fields()
        values = load_recipe(self.recipe, {"method": self.method} if self.method else {}).flat()
        if backbone is not None:
            fields |= {"encoder": BACKBONE, "stem": "auto"}
            if "layers" in values and "layers" not in fields and backbone.layer_names:
                values["layers"] = [list(backbone.layer_names)[-1]]
        return make_recipe(values | fields)

    def _to_class_name(self, name: Any) -> str:
        """Return the recognizer's name of a class, which is text: 2 may be its "2.0"."""
        pairs = zip(self.classes_.tolist(), self._check_fitted().class_names, strict=True)
        return next((text for label, text in pairs if label == name), str(name))

    def _warn_if_nothing_is_rejected(self) -> Self:
        if note := rejects_nothing(self.recognizer_.threshold):
            warnings.warn(note, stacklevel=3)
        return self

    def _read_images(self, X: Any) -> ImageSet:
        return as_images(X, self._check_fitted().image_format)

    def _check_fitted(self) -> Recognizer:
        check_is_fitted(self, "recognizer_")
        return self.recognizer_


def unknown_label(classes: NDArray[Any]) -> Any:
    """Return the label of rejected images for such classes.

    >>> unknown_label(np.array(["cat", "dog"])), unknown_label(np.array([3, 5]))
    ('unknown', -1)
    """
    return UNKNOWN_NAME if classes.dtype.kind in "UO" else UNKNOWN_NUMBER
