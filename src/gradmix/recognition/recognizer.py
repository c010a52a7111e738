"""A classifier that may say "unknown"."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data import ImageFormat, ImageSet, load_image_files
from ..detection import KNN, Decision, Detector, Outputs, Predictions, Scores, Threshold
from ..errors import UserError
from ..models import Network, NetworkSpec
from ..views import Normalizer
from .features import add_head, cached_extract

if TYPE_CHECKING:
    from .discover import Discovery
    from .explain import Explanation


LARGEST_PICTURE = 32
MOST_PICTURE_BYTES = 16 * 2**20


@dataclass(frozen=True, eq=False)
class Gallery:
    """Small pictures of the training images, so that a model can show what an image looks like.

    A model is used where its training images are not, so names of files alone would often show nothing. At
    most 32 × 32 pixels, and only while all of them together stay below 16 MB (5,461 color images): above,
    only the names are kept. :meth:`Recognizer.without_pictures` drops them before a model is given away.

    ``pictures`` (M, C, h, w) uint8 or None, ``sources`` M names or none, in the order of the index.
    """

    pictures: Tensor | None = None
    sources: tuple[str, ...] = ()

    @staticmethod
    def of(images: ImageSet) -> Gallery:
        """Make the gallery of square images that are about to be indexed."""
        side = min(LARGEST_PICTURE, images.images.shape[-1])
        if len(images) * images.channels * side * side > MOST_PICTURE_BYTES:
            return Gallery(None, images.sources)
        return Gallery(images.convert(side, None).images[:].clone(), images.sources)

    def select(self, keep: Tensor) -> Gallery:
        """Return the rows where ``keep`` (a boolean mask) is true."""
        pictures = None if self.pictures is None else self.pictures[keep]
        rows = keep.nonzero()[:, 0].tolist()
        return Gallery(pictures, tuple(self.sources[i] for i in rows) if self.sources else ())

    def join(self, more: Gallery, before: int, added: int) -> Gallery:
        """Append ``added`` images to ``before``: pictures if all have them, names empty where unknown."""
        pictures = None
        if self.pictures is not None and more.pictures is not None:
            pictures = torch.cat([self.pictures, more.pictures])
            if pictures.numel() > MOST_PICTURE_BYTES:
                pictures = None
        if not self.sources and not more.sources:
            return Gallery(pictures)
        return Gallery(pictures, (*(self.sources or ("",) * before), *(more.sources or ("",) * added)))

    def state(self) -> dict[str, Tensor]:
        """Return tensors for the model file; names as UTF-8 with a zero byte between them."""
        state = {} if self.pictures is None else {"pictures": self.pictures.contiguous()}
        if self.sources:
            text = "\0".join(self.sources).encode("utf-8", "surrogateescape")
            # Not from the buffer itself: it is read-only. One byte in front, for a tensor may not be empty.
            state["sources"] = torch.frombuffer(bytearray(b"\0" + text), dtype=torch.uint8)
        return state

    @staticmethod
    def from_state(state: Mapping[str, Tensor], count: int) -> Gallery:
        """Return what :meth:`state` described, for an index of ``count`` images."""
        pictures = state.get("pictures")
        sources: tuple[str, ...] = ()
        if "sources" in state:
            text = state["sources"].numpy().tobytes()[1:]
            sources = tuple(text.decode("utf-8", "surrogateescape").split("\0"))
        if (pictures is not None and len(pictures) != count) or len(sources) not in (0, count):
            raise ValueError(f"pictures or names of the training images do not fit the {count} in the index")
        return Gallery(pictures, sources)


@dataclass(frozen=True, eq=False)
class Recognizer:
    """Network, decision, and the training images' features as evidence.

    ``index`` holds those features, whatever decides: explaining, enrolling and discovering rest on them, and
    every other detector can be fitted from them. ``recipe`` says where the model comes from; nothing in use
    depends on it.
    """

    network: Network
    spec: NetworkSpec  # what the network is built from
    normalizer: Normalizer
    index: KNN
    decision: Decision
    class_names: tuple[str, ...]
    layers: tuple[str, ...] = ()  # where heat maps are taken; empty: the last that gives maps
    recipe: Mapping[str, Any] = field(default_factory=dict)
    calibration: Outputs | None = None  # what the network says about held-out known images
    gallery: Gallery = field(default_factory=Gallery)  # what the indexed images look like
    enrolled_names: tuple[str, ...] = ()  # classes that the network was not trained for

    @property
    def threshold(self) -> Threshold:
        return self.decision.threshold

    @property
    def image_format(self) -> ImageFormat:
        """The size and channels of the images that the network takes."""
        return ImageFormat(self.spec.image_size, self.spec.channels)

    @property
    def enrolled_labels(self) -> list[int]:
        return [self.class_names.index(name) for name in self.enrolled_names]

    def convert(self, images: ImageSet) -> ImageSet:
        """Return the images in the size and channels that the network takes."""
        return images.convert(self.spec.image_size, self.spec.channels)

    def read(self, *paths: str | Path) -> ImageSet:
        """Read unlabelled images from files and folders, in the size and channels that the network takes."""
        files = [Path(path) for path in paths]
        return load_image_files(files, size=self.spec.image_size, channels=self.spec.channels)[0]

    def outputs(
        self,
        images: ImageSet,
        what: str = "features",
        cache: bool = False,
        penultimate: bool | None = None,
    ) -> Outputs:
        """Return the network's outputs for the images; ``cache``: from disk, if they were kept there.

        ``penultimate``: with the penultimate activations and the head; None: if the decision wants them.
        """
        if penultimate is None:
            detector = self.decision.detector
            penultimate = bool({"penultimate", "head"} & (detector.needs | detector.prefers))
        found = cached_extract(
            self.network, self.normalizer, self.convert(images), what, cache, penultimate=penultimate
        )
        if self.logits_are_of_these_classes:
            return found
        return replace(found, logits=None, extra={}, head=None)

    @property
    def logits_are_of_these_classes(self) -> bool:
        """Whether no class was enrolled or forgotten since the head was trained."""
        return not self.enrolled_names and self.network.num_classes in (0, len(self.class_names))

    @functools.cached_property
    def parts(self) -> frozenset[str]:
        """The names of what the network gives for an image, for detectors to need: a blank image tells."""
        size, channels = self.spec.image_size, self.spec.channels
        blank = torch.zeros((1, channels, size, size), dtype=torch.uint8)
        return self.outputs(ImageSet(blank, torch.tensor([-1]), ()), penultimate=True).parts

    @property
    def holds_penultimate(self) -> bool:
        """Whether the index has the penultimate activations of the training images: as their features."""
        return self.network.features_are_penultimate and self.index.keeps_lengths

    def training_outputs(self, detector: Detector, to_score: bool = False) -> Outputs:
        """Return the network's outputs for the training images, from the features that the index holds.

        They have what the detector learns from; with ``to_score``, what it scores. Refused where that cannot
        be had from the features.
        """
        found = self.index.training_features()
        if not (detector.learns or to_score):
            return found
        direct = {"features", "penultimate"} & detector.needs
        if direct and not (self.index.keeps_lengths or self.network.unit_features):
            raise UserError(
                f"detector {detector.name} measures distances, and the index of this model, made by an "
                "earlier version, holds directions only; use knn or mls, or train it again"
            )
        return self._with_logits(found, detector)

    def held_out_outputs(self, detector: Detector) -> Outputs | None:
        """Return the outputs for the held-out images, with what the detector needs; None without any."""
        if self.calibration is None:
            return None
        return self._with_logits(self.calibration, detector)

    @torch.no_grad()
    def _with_logits(self, found: Outputs, detector: Detector) -> Outputs:
        """Add logits to features that were kept without: the head is a function of the embedding."""
        wants_logits = "logits" in detector.needs | detector.prefers
        if detector.needs & {"logits", "head"} and not self.logits_are_of_these_classes:
            raise UserError(
                f"detector {detector.name} knows only the classes the network was trained on; use knn"
            )
        head = self.network.classifier
        wants_logits = wants_logits and found.logits is None and self.logits_are_of_these_classes
        if wants_logits and self.network.unit_features and head is not None:
            if "logits" in detector.needs:
                raise UserError(f"detector {detector.name} needs logits of the training images; use knn")
        elif wants_logits and head is not None:
            z = found.features.to(next(head.parameters()).device)
            more = {name: values.float().cpu() for name, values in head.extra(z).items()}
            found = replace(found, logits=head(z).cpu(), extra={**found.extra, **more})
        found = add_head(found, self.network)
        if not self.logits_are_of_these_classes:
            found = replace(found, head=None)
        if not detector.needs <= found.parts and detector.needs <= self.parts:
            missing = ", ".join(sorted(detector.needs - found.parts))
            way_out = (
                f"train with --detector {detector.name}, or with projection: none, where both are one"
                if missing == "penultimate"
                else "give it held-out ones: gradmix calibrate RUN --images FOLDER"
            )
            raise UserError(
                f"detector {detector.name} needs {missing} of each image, and of its training images the "
                f"model keeps features only; {way_out}"
            )
        detector.require(found)
        return found

    def scores(self, outputs: Outputs) -> Scores:
        """Score and class of what the network said, before the threshold."""
        return self.decision.scores(outputs)

    def predict(self, images: ImageSet) -> Predictions:
        """Name the images, or call them unknown; each by itself, whatever else is among them."""
        return self.decision.decide(self.outputs(images), self.class_names)

    def with_detector(self, name: str) -> Recognizer:
        """Return one that decides by another score, with a threshold of its own at the same rate."""
        from .calibration import choose_detector

        return choose_detector(self, name)

    def with_threshold(self, threshold: Threshold) -> Recognizer:
        """Return one that decides by the same score with another threshold."""
        return replace(self, decision=replace(self.decision, threshold=threshold))

    def at_rate(self, false_reject: float, per_class: bool | None = None) -> Recognizer:
        """Return one that may call another share of the known images unknown; nothing is scored again."""
        return replace(self, decision=self.decision.at_rate(false_reject, per_class))

    def recalibrate(
        self,
        false_reject: float | None = None,
        per_class: bool | None = None,
        images: ImageSet | None = None,
    ) -> Recognizer:
        """Return one with another threshold, set with ``images`` never seen, or with those held out."""
        from .calibration import calibrate_on, recalibrate

        if images is None:
            return recalibrate(self, false_reject, per_class)
        return calibrate_on(self, images, false_reject, per_class)

    def enroll(self, name: str, images: ImageSet, add: bool = False) -> Recognizer:
        """Return one that knows a class more, from one image or more, without training."""
        from .enroll import enroll

        return enroll(self, name, images, add)

    def forget(self, name: str) -> Recognizer:
        """Return one that knows a class less."""
        from .enroll import forget

        return forget(self, name)

    def count_images(self, name: str) -> int:
        """Return how many images of a class the index holds."""
        return int((self.index.state()["labels"] == self.class_names.index(name)).sum())

    def discover(self, images: ImageSet, min_size: int = 5) -> Discovery:
        """Group what it rejects among ``images``: candidates for new classes."""
        from .discover import discover

        return discover(self, images, min_size)

    def without_pictures(self) -> Recognizer:
        """Return one that may be given away without showing what it was trained on."""
        return replace(self, gallery=Gallery())

    def heat_maps(self, images: ImageSet) -> Tensor:
        """Return (N, H, W) in [0, 1]: LayerCAM of the score of the class that each image is taken for.

        What is explained is why an image looks like what it looks most like, whether or not it is accepted.
        """
        from .explain import heat_maps

        return heat_maps(self, self.convert(images))

    def explain(self, images: ImageSet, classes: int = 3, neighbours: int = 3) -> list[Explanation]:
        """Explain why each image was named or rejected: heat map, nearest images, score and threshold."""
        from .explain import explain

        return explain(self, images, classes, neighbours)
