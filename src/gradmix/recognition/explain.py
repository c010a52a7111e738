"""Why an image was named, or rejected: where the network looked, and at which training images it was near.

The label is argmax_c d_c, d_c the sum of the k largest cosines to images of class c. So the heat map is
LayerCAM of d_c of the winning class, and the evidence are the images whose cosines were summed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attribution import LayerCAM
from ..data import ImageSet
from ..detection.bank import unit_rows
from ..errors import UserError
from ..models import Network
from ..progress import progress
from .class_names import UNKNOWN_NAME
from .head_start import lifted

if TYPE_CHECKING:
    from .recognizer import Recognizer

_IMAGES_AT_ONCE = 64  # a gradient needs all activations of a batch


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A training image: its place in the index, its cosine, where it came from and what it looks like."""

    index: int
    similarity: float
    source: str
    picture: Tensor | None


@dataclass(frozen=True, eq=False)
class ClassEvidence:
    """How near an image is to one class: ``similarity`` is d_c / k, the mean cosine of the k nearest.

    An enrolled class competes with ``similarity`` + ``head_start``.
    """

    name: str
    similarity: float
    neighbours: tuple[Neighbour, ...]
    head_start: float = 0.0


@dataclass(frozen=True, eq=False)
class Explanation:
    """One image (C, H, W) uint8, its heat map (H, W) in [0, 1], and what speaks for which class.

    ``label`` is a class name or "unknown"; ``classes`` are the nearest ones, the first being the one that it
    is taken for; it is known iff ``score`` >= ``threshold`` (-inf where nothing is rejected).
    """

    image: Tensor
    source: str
    label: str
    score: float
    threshold: float
    heat: Tensor
    classes: tuple[ClassEvidence, ...]

    @property
    def known(self) -> bool:
        return self.score >= self.threshold

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it: everything but the pixels."""
        return {
            "source": self.source,
            "label": self.label,
            "known": self.known,
            "score": self.score,
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
            "classes": [
                {
                    "name": c.name,
                    "similarity": c.similarity,
                    "head_start": c.head_start,
                    "neighbours": [
                        {"index": n.index, "similarity": n.similarity, "source": n.source}
                        for n in c.neighbours
                    ],
                }
                for c in self.classes
            ],
            "heat": [[round(v, 3) for v in row] for row in self.heat.tolist()],
        }


def explain(
    recognizer: Recognizer, images: ImageSet, classes: int = 3, neighbours: int = 3
) -> list[Explanation]:
    """One explanation an image, with its ``classes`` nearest classes and their nearest training images."""
    if classes < 1 or neighbours < 1:
        raise UserError(f"explain needs at least 1 class and 1 neighbour, not {classes} and {neighbours}")
    fitted = recognizer.fitted(images)
    outputs = recognizer.outputs(images)
    scores = recognizer.scores(outputs)
    thresholds = recognizer.threshold.of(scores.label)
    known = recognizer.threshold.accepts(scores.score, scores.label)
    d = recognizer.knn.class_similarity(outputs.features)
    d, unlifted = lifted(d, recognizer.head_start), d
    top = d.topk(min(classes, d.shape[1]), dim=1)
    index = recognizer.knn.state()
    heat = heat_maps(recognizer, fitted)
    unit = unit_rows(outputs.features)
    found = []
    for i in range(len(images)):
        name = recognizer.class_names[int(scores.label[i])]
        evidence = []
        for label in top.indices[i].tolist():
            similarity = float(unlifted[i, label])
            if similarity > -math.inf:
                near = _nearest_of_class(unit[i : i + 1], index, label, neighbours)
                shown = tuple(
                    _neighbour(recognizer, place, cosine)
                    for place, cosine in zip(near[0][0].tolist(), near[1][0].tolist(), strict=True)
                )
                mean = similarity / recognizer.knn.k
                start = recognizer.head_start[label] / recognizer.knn.k if recognizer.head_start else 0.0
                evidence.append(ClassEvidence(recognizer.class_names[label], mean, shown, start))
        found.append(
            Explanation(
                fitted.images[i],
                images.sources[i] if images.sources else "",
                name if bool(known[i]) else UNKNOWN_NAME,
                float(scores.score[i]),
                float(thresholds[i]),
                heat[i],
                tuple(evidence),
            )
        )
    return found


def heat_maps(recognizer: Recognizer, fitted: ImageSet) -> Tensor:
    """(N, H, W) in [0, 1]: LayerCAM of d_c of the winning class c, at the layers that the method looks at."""
    network = recognizer.network
    device = next(network.parameters()).device
    layers = getattr(recognizer.recipe.objective, "layers", None) or last_layer(network)
    cam = LayerCAM(network, layers, normalize="per_image")
    index = recognizer.knn.state()
    network.eval()
    maps = []
    with progress("heat maps", len(fitted)) as advance:
        for first in range(0, len(fitted), _IMAGES_AT_ONCE):
            some = fitted.images[first : first + _IMAGES_AT_ONCE].to(device)
            ready = recognizer.normalizer(some).contiguous(memory_format=torch.channels_last)

            def similarity(z: Tensor) -> Tensor:
                """d_c(z): the neighbours are those of z itself, so one forward pass is enough."""
                unit = F.normalize(network.features(z), dim=1)
                nearest = _winners_neighbours(recognizer, unit.detach().cpu(), index)
                return torch.einsum("nd,nkd->n", unit, nearest.to(unit))

            maps.append(cam(ready, similarity).cpu())
            advance(len(some))
    if not maps:
        return torch.zeros(0, *fitted.images.shape[-2:])
    heat = torch.cat(maps)
    return heat / heat.amax((1, 2), keepdim=True).clamp(min=torch.finfo(heat.dtype).tiny)


def last_layer(network: Network) -> tuple[str, ...]:
    """The encoder's deepest named stage: where to look when a method names no layers."""
    names = list(getattr(network.encoder, "layer_names", {}))
    if not names:
        raise UserError("heat maps need a layer that gives feature maps (N, K, h, w); this encoder has none")
    return (names[-1],)


def _winners_neighbours(recognizer: Recognizer, unit: Tensor, index: dict[str, Tensor]) -> Tensor:
    """(n, d) unit queries -> (n, k, d): the k nearest images of argmax_c d_c; zeros fill up small classes."""
    winner = lifted(recognizer.knn.class_similarity(unit), recognizer.head_start).argmax(dim=1)
    nearest = unit.new_zeros(len(unit), recognizer.knn.k, unit.shape[1])
    for label in sorted(set(winner.tolist())):
        of_class = winner == label
        places, _ = _nearest_of_class(unit[of_class], index, label, recognizer.knn.k)
        nearest[of_class, : places.shape[1]] = index["features"][places].to(unit)
    return nearest


def _nearest_of_class(
    unit: Tensor, index: dict[str, Tensor], label: int, count: int
) -> tuple[Tensor, Tensor]:
    """(n, d) unit queries -> the nearest images of one class: places in the index, cosines; (n, ≤ count)."""
    places = (index["labels"] == label).nonzero()[:, 0]
    similarity = unit @ index["features"][places].T
    near = similarity.topk(min(count, len(places)), dim=1)
    return places[near.indices], near.values.clamp(-1.0, 1.0)


def _neighbour(recognizer: Recognizer, place: int, cosine: float) -> Neighbour:
    gallery = recognizer.gallery
    source = gallery.sources[place] if gallery.sources else f"training image {place}"
    return Neighbour(place, cosine, source, None if gallery.pictures is None else gallery.pictures[place])
