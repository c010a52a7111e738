"""A classifier that may say "unknown"."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from ..data import UNKNOWN, ImageSet, load_image_files
from ..detection import KNN, Outputs, Scores, Threshold
from ..detection.outputs import clamp_to_finite
from ..models import Network
from ..training import Recipe
from ..views import Normalizer
from .calibration import calibrated_on, recalibrated
from .class_names import UNKNOWN_NAME
from .discover import Discovery, discover
from .enroll import enrolled, forgotten
from .explain import Explanation, explain, heat_maps
from .feature_cache import cached_extract
from .gallery import Gallery
from .head_start import scores_with_head_start


@dataclass(frozen=True)
class Predictions:
    """``label`` (N,) known class or -1, ``nearest`` (N,) the known class it looks most like, ``score``."""

    label: Tensor
    nearest: Tensor
    score: Tensor
    class_names: tuple[str, ...]

    def names(self) -> list[str]:
        """Class names, "unknown" where rejected."""
        return [self.class_names[i] if i >= 0 else UNKNOWN_NAME for i in self.label.tolist()]


@dataclass(frozen=True, eq=False)
class Recognizer:
    """Network, nearest-neighbour index of the training images, and the score below which all is unknown."""

    network: Network
    normalizer: Normalizer
    knn: KNN
    threshold: Threshold
    class_names: tuple[str, ...]
    recipe: Recipe
    calibration: Outputs | None = None  # features of held-out known images, to set the threshold again
    gallery: Gallery = field(default_factory=Gallery)  # what the indexed images look like
    enrolled_names: tuple[str, ...] = ()  # classes that the network was not trained for
    head_start: tuple[float, ...] = ()  # of every class, if some are enrolled

    @property
    def enrolled_labels(self) -> list[int]:
        return [self.class_names.index(name) for name in self.enrolled_names]

    def fitted(self, images: ImageSet) -> ImageSet:
        """The images in the size and channels that the network knows."""
        return images.converted(self.recipe.views.image_size, self.recipe.views.channels)

    def read(self, *paths: str | Path) -> ImageSet:
        """Unlabelled images from files and folders, in the size and channels that the network knows."""
        views = self.recipe.views
        files = [Path(path) for path in paths]
        return load_image_files(files, size=views.image_size, channels=views.channels)[0]

    def outputs(self, images: ImageSet, what: str = "features", cache: bool = False) -> Outputs:
        """What the network says about the images; ``cache``: or said before, if it was kept on disk."""
        found = cached_extract(self.network, self.normalizer, self.fitted(images), what, use=cache)
        head = self.network.classifier
        if head is not None and (self.enrolled_names or head.out_features != len(self.class_names)):
            found = replace(found, logits=None)  # they are of the classes it was trained on, not of these
        return found

    def scores(self, outputs: Outputs) -> Scores:
        """Score and class of what the network said: the index's own, with the head start of enrolled ones."""
        return scores_with_head_start(self.knn, outputs.features, self.head_start)

    def decisive(self, outputs: Outputs) -> tuple[Scores, float]:
        """Scores, and the one number that they are compared with.

        Where thresholds differ from class to class, the scores are margins, score − threshold, and it is 0.
        """
        scores = self.scores(outputs)
        if not self.threshold.by_class:
            return scores, self.threshold.value
        margin = scores.score - self.threshold.of(scores.label)
        return Scores(clamp_to_finite(margin), scores.label), 0.0

    def predict(self, images: ImageSet) -> Predictions:
        """Name the images, or call them unknown; each by itself, whatever else is among them."""
        scores = self.scores(self.outputs(images))
        known = self.threshold.accepts(scores.score, scores.label)
        label = scores.label.where(known, UNKNOWN)
        return Predictions(label, scores.label, scores.score, self.class_names)

    def recalibrated(
        self,
        false_reject: float | None = None,
        per_class: bool | None = None,
        images: ImageSet | None = None,
    ) -> Recognizer:
        """With another threshold, set with known ``images`` never seen, or with those that were held out."""
        if images is None:
            return recalibrated(self, false_reject, per_class)
        return calibrated_on(self, images, false_reject, per_class)

    def enrolled(self, name: str, images: ImageSet, add: bool = False) -> Recognizer:
        """One that knows a class more, from one image or more, without training; see :mod:`.enroll`."""
        return enrolled(self, name, images, add)

    def forgotten(self, name: str) -> Recognizer:
        """One that knows a class less."""
        return forgotten(self, name)

    def discover(self, images: ImageSet, min_size: int = 5) -> Discovery:
        """What it rejects among ``images``, in groups that may be classes."""
        return discover(self, images, min_size)

    def without_pictures(self) -> Recognizer:
        """One that may be given away without showing what it was trained on."""
        return replace(self, gallery=Gallery())

    def heat_maps(self, images: ImageSet) -> Tensor:
        """(N, H, W) in [0, 1]: LayerCAM of d_c, the similarity to the k nearest images of the winning class.

        What is explained is why an image looks like what it looks most like, whether or not it is accepted.
        """
        return heat_maps(self, self.fitted(images))

    def explain(self, images: ImageSet, classes: int = 3, neighbours: int = 3) -> list[Explanation]:
        """Why each image was named or rejected: heat map, nearest training images, score and threshold."""
        return explain(self, images, classes, neighbours)
