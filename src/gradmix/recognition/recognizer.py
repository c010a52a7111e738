"""A classifier that may say "unknown"."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attribution import LayerCAM
from ..data import UNKNOWN, ImageSet, load_image_files
from ..detection import KNN, Outputs, Threshold
from ..models import Network
from ..training import Recipe
from ..views import Normalizer
from .extract import extract

UNKNOWN_NAME = "unknown"


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

    def fitted(self, images: ImageSet) -> ImageSet:
        """The images in the size and channels that the network knows."""
        return images.converted(self.recipe.views.image_size, self.recipe.views.channels)

    def read(self, *paths: str | Path) -> ImageSet:
        """Unlabelled images from files and folders, in the size and channels that the network knows."""
        views = self.recipe.views
        files = [Path(path) for path in paths]
        return load_image_files(files, size=views.image_size, channels=views.channels)[0]

    def outputs(self, images: ImageSet, what: str = "features") -> Outputs:
        return extract(self.network, self.normalizer, self.fitted(images), what=what)

    def predict(self, images: ImageSet) -> Predictions:
        scores = self.knn.score(self.outputs(images))
        known = self.threshold.accepts(scores.score)
        label = scores.label.where(known, UNKNOWN)
        return Predictions(label, scores.label, scores.score, self.class_names)

    def heat_maps(self, images: ImageSet) -> Tensor:
        """(N, H, W) in [0, 1]: LayerCAM of the similarity to the k nearest training images.

        What is explained is why an image looks like what it looks most like, whether or not it is accepted.
        """
        device = next(self.network.parameters()).device
        ready = self.normalizer(self.fitted(images).images.to(device))
        layers = getattr(self.recipe.objective, "layers", None) or last_layer(self.network)
        found = self.knn.neighbours(self.outputs(images).features, self.knn.k)
        nearest = self.knn.state()["features"][found.index]  # (N, k, d)

        def similarity(z: Tensor) -> Tensor:
            return torch.einsum("nd,nkd->n", F.normalize(z, dim=1), nearest.to(z))

        self.network.eval()
        maps = LayerCAM(self.network, layers, normalize="per_image")(
            ready.contiguous(memory_format=torch.channels_last), similarity
        ).cpu()
        return maps / maps.amax((1, 2), keepdim=True).clamp(min=torch.finfo(maps.dtype).tiny)


def last_layer(network: Network) -> tuple[str, ...]:
    """The encoder's deepest named stage: where to look when a method names no layers."""
    names = getattr(network.encoder, "layer_names", {})
    return (list(names)[-1],)
