"""What can be done with a fitted classifier beside naming images: measure, teach, calibrate, give away."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..data import (
    ImageSet,
    as_images,
    as_labeled_images,
    iterate_images,
    read_own_labels,
    read_targets,
    refuse_identical,
)
from ..detection import UNKNOWN_NAME
from ..errors import UserError
from ..hub_file import MODEL_FILE, parse_hub_address
from ..recognition import Discovery, Recognizer, save
from .display import ExplanationList

if TYPE_CHECKING:
    from ..evaluation import OpenSetResult
    from ..hub import PushResult


class ModelMethods:
    """Methods that rest on the fitted :class:`Recognizer`, and on the labels that its classes have here."""

    recognizer_: Recognizer
    known_classes_: NDArray[Any]
    unknown_label_: Any

    if TYPE_CHECKING:

        def _recipe_name(self) -> str: ...

    def evaluate(
        self, known: Any, unknown: Any = None, *, y: Any = None, detectors: str | Sequence[str] = ()
    ) -> OpenSetResult:
        """Measure how well known images are named and unknown ones rejected, as ``gradmix evaluate`` does.

        ``known``: labelled images of the known classes; a folder (its ``test`` part, if it has one), or
        images and their labels ``y``. ``unknown``: images of other classes, or several sets by name; without
        it, those that ``y`` calls unknown, or of a folder those in class folders that the model does not
        know (``test/unknown``). ``detectors``: further scores to compare, or "all" that the model
        can compute.
        """
        from ..evaluation import applicable_detectors, evaluate_open_set

        recognizer = self._check_fitted()
        if unknown is None:
            known, y, unknown = self._split_off_unknown(known, y)
        named = self._read_labeled(known, y, ("test",))
        others = unknown if isinstance(unknown, Mapping) else {"the unknown ones": unknown}
        read = {str(name): as_images(images, recognizer.image_format) for name, images in others.items()}
        for name, images in read.items():
            refuse_identical(named, images, "the known ones", name)
        if isinstance(detectors, str):
            detectors = applicable_detectors(recognizer) if detectors == "all" else detectors.split(",")
        one = next(iter(read.values())) if not isinstance(unknown, Mapping) else None
        return evaluate_open_set(recognizer, named, read if one is None else one, detectors=detectors)

    def calibrate(
        self,
        images: Any = None,
        y: Any = None,
        *,
        false_reject: float | None = None,
        per_class: bool | None = None,
        detector: str | None = None,
    ) -> Self:
        """Set the threshold anew, as ``gradmix calibrate`` does; what is None stays as it is.

        ``images``: labelled images of known classes that were never seen (a folder, its ``val`` part if it
        has one, or images and labels ``y``); without, those that were held out of training.
        """
        recognizer = self._check_fitted()
        never_seen = None if images is None else self._read_labeled(images, y, ("val",))
        if detector is not None:
            if never_seen is not None and recognizer.calibration is None:
                recognizer = recognizer.recalibrate(images=never_seen)
            recognizer = recognizer.with_detector(detector)
        changed = recognizer.recalibrate(false_reject, per_class, never_seen)
        if note := changed.threshold.describe_limit():
            raise UserError(note)
        self.recognizer_ = changed
        return self

    def discover(self, X: Any, min_size: int = 5) -> Discovery:
        """Group the images that are called unknown: candidates for new classes, for :meth:`enroll`."""
        return self._check_fitted().discover(self._read_images(X), min_size)

    def explain(self, X: Any, classes: int = 3, neighbours: int = 3) -> ExplanationList:
        """Explain why each image was named or rejected; a notebook shows it as pictures."""
        return ExplanationList.of(self._check_fitted().explain(self._read_images(X), classes, neighbours))

    def enroll(self, X: Any, *, name: Any, add: bool = False) -> Self:
        """Learn class ``name`` from one image or more, without training."""
        known = self._check_fitted()
        if (self.unknown_label_ == UNKNOWN_NAME) != isinstance(name, str) or name == self.unknown_label_:
            kind = "text" if self.unknown_label_ == UNKNOWN_NAME else "a number"
            raise UserError(
                f"a class of this model is {kind} other than {self.unknown_label_!r}, not {name!r}"
            )
        self.recognizer_ = known.enroll(self._to_class_name(name), self._read_images(X), add)
        if len(self.recognizer_.class_names) > len(self.known_classes_):
            self.known_classes_ = np.asarray([*self.known_classes_.tolist(), name])
        return self

    def forget(self, name: Any) -> Self:
        """Remove class ``name``."""
        known, text = self._check_fitted(), self._to_class_name(name)
        self.recognizer_ = known.forget(text)
        # By position: 1 and "1" are one class to the recognizer, but not equal.
        self.known_classes_ = np.delete(self.known_classes_, known.class_names.index(text))
        return self._warn_if_nothing_is_rejected()

    def export(self, path: str | Path, detector: str = "") -> Path:
        """Write the folder ``path`` for use without torch, as ``gradmix export`` does: ONNX, and a script."""
        from ..export import export_model

        return export_model(self._check_fitted(), path, detector)

    def save(self, path: str | Path) -> Path:
        """Write the model to a ``.safetensors`` file, or into a folder; ``gradmix predict`` reads it too."""
        file = Path(path)
        recognizer = self._check_fitted()
        if file.suffix != ".safetensors":
            file.mkdir(parents=True, exist_ok=True)
            file /= MODEL_FILE
        save(recognizer, file, notes=self._make_notes())
        return file

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the model into a folder; :meth:`save` under the name that it has elsewhere."""
        path = Path(folder)
        if path.suffix == ".safetensors":
            raise UserError(f"save_pretrained writes a folder, and {path} is the name of a file; use save")
        return self.save(path)

    def push_to_hub(
        self, repo: str, *, private: bool = False, pictures: bool = False, new_card: bool = False
    ) -> PushResult:
        """Upload the model to ``repo`` (owner/name) on the Hugging Face Hub, as ``gradmix push`` does.

        ``pictures``: with the small pictures and file names of the training images. An existing card is kept
        unless ``new_card``.
        """
        from ..hub import push_recognizer

        address = parse_hub_address(repo)
        return push_recognizer(
            self._check_fitted(),
            self._make_notes(),
            repo if address is None else address.repo,
            private=private,
            pictures=pictures,
            new_card=new_card,
        )

    def _make_notes(self) -> dict[str, Any]:
        return {"classes": self.known_classes_.tolist(), "recipe": self._recipe_name()}

    def _read_labeled(self, X: Any, y: Any, splits: Sequence[str]) -> ImageSet:
        """Return images with the labels of the recognizer; refuse classes that it does not know."""
        recognizer = self._check_fitted()
        images, classes = as_labeled_images(X, y, recognizer.image_format, splits)
        names = [self._to_class_name(value) for value in classes.tolist()]
        foreign = next((name for name in names if name not in recognizer.class_names), None)
        if foreign is not None:
            raise UserError(
                f"class '{foreign}' is not known to the model (it knows: {', '.join(recognizer.class_names)})"
            )
        label_of = torch.tensor([recognizer.class_names.index(name) for name in names])
        return replace(images, labels=label_of[images.labels], class_names=recognizer.class_names)

    def _split_off_unknown(self, X: Any, y: Any) -> tuple[ImageSet, NDArray[Any], ImageSet]:
        """Return the images of known classes, their labels, and the others; a folder brings its labels."""
        target, is_unknown = (None if y is None else read_targets(y)), None
        if target is not None:
            is_unknown = target == self.unknown_label_
        elif isinstance(X, str | Path):
            X = read_own_labels(X, self._check_fitted().image_format, ("test",))
            target = np.asarray([*X.class_names, UNKNOWN_NAME])[X.labels.numpy()]  # -1: the last
            is_unknown = ~np.isin(target, self._check_fitted().class_names)
        if target is None or is_unknown is None or not is_unknown.any():
            raise UserError(
                "no unknown images to measure with; give some (unknown=…), or label them "
                f"{self.unknown_label_!r} in y, or put a folder of them beside those of the classes"
            )
        images = as_images(X, self._check_fitted().image_format, len(target))
        if len(images) != len(target):
            raise UserError(f"{len(images)} images but y of shape {target.shape}; give one label per image")
        return (
            images.select(torch.from_numpy(~is_unknown)),
            target[~is_unknown],
            images.select(torch.from_numpy(is_unknown)),
        )

    def _to_class_name(self, name: Any) -> str:
        """Return the recognizer's name of a class, which is text: 2 may be its "2.0"."""
        pairs = zip(self.known_classes_.tolist(), self._check_fitted().class_names, strict=True)
        return next((text for label, text in pairs if label == name), str(name))

    def _warn_if_nothing_is_rejected(self) -> Self:
        if note := self.recognizer_.threshold.describe_limit():
            warnings.warn(note, stacklevel=3)
        return self

    def _read_parts(self, X: Any, count: int | None = None) -> Any:
        """Yield the images of ``X`` in the network's format: an iterator's in parts, all others at once."""
        return iterate_images(X, self._check_fitted().image_format, count)

    def _read_images(self, X: Any) -> ImageSet:
        from ..data.concatenate import concatenate_unknown

        parts = list(self._read_parts(X))
        return parts[0] if len(parts) == 1 else concatenate_unknown(parts)

    def _check_fitted(self) -> Recognizer:
        check_is_fitted(self, "recognizer_")
        return self.recognizer_
