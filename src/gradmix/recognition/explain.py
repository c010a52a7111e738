"""Why an image was named, or rejected: where the network looked, and at which training images it was near.

The heat map is LayerCAM of what speaks for the class that the image is taken for: where neighbours decide,
d_c, the sum of the k largest cosines to images of class c; where logits decide, the logit of c. The evidence
are the nearest training images in both cases.
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
from ..detection import KNN, add_bias
from ..detection.bank import unit_rows
from ..errors import UserError
from ..models import Network
from ..progress import progress

if TYPE_CHECKING:
    from .recognizer import Recognizer

_IMAGES_AT_ONCE = 64  # a gradient needs all activations of a batch


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A training image: its row in the index, its cosine, where it came from and what it looks like."""

    index: int
    similarity: float
    source: str
    picture: Tensor | None


@dataclass(frozen=True, eq=False)
class ClassEvidence:
    """How near an image is to one class: ``similarity`` is d_c / k, the mean cosine of the k nearest.

    An enrolled class competes with ``similarity`` + ``class_bias``.
    """

    name: str
    similarity: float
    neighbours: tuple[Neighbour, ...]
    class_bias: float = 0.0


@dataclass(frozen=True, eq=False)
class Explanation:
    """One image (C, H, W) uint8, its heat map (H, W) in [0, 1], and what speaks for which class.

    ``label`` is a class name or "unknown"; ``classes`` are the nearest ones, the first being the one that it
    is taken for; it is known iff ``score`` >= ``threshold`` (-inf where nothing is rejected). ``p_value``
    says how unusual that is for a known image.
    """

    image: Tensor
    source: str
    label: str
    score: float
    threshold: float
    heat: Tensor
    classes: tuple[ClassEvidence, ...]
    p_value: float = math.nan

    @property
    def known(self) -> bool:
        return self.score >= self.threshold

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pixels, as JSON can hold it."""
        return {
            "source": self.source,
            "label": self.label,
            "known": self.known,
            "score": self.score,
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
            "p_value": None if math.isnan(self.p_value) else self.p_value,
            "classes": [
                {
                    "name": c.name,
                    "similarity": c.similarity,
                    "class_bias": c.class_bias,
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
    """Explain each image with its ``classes`` nearest classes and their nearest training images."""
    if classes < 1 or neighbours < 1:
        raise UserError(f"explain needs at least 1 class and 1 neighbour, not {classes} and {neighbours}")
    ready = recognizer.convert(images)
    outputs = recognizer.outputs(images)
    decision = recognizer.decision
    decided = decision.decide(outputs, recognizer.class_names)
    values = decision.class_scores(outputs)
    top = values.topk(min(classes, values.shape[1]), dim=1).indices
    similarities = recognizer.index.class_similarity(outputs.features)
    index = recognizer.index.state()
    heat = heat_maps(recognizer, ready)
    unit = unit_rows(outputs.features)
    k = recognizer.index.k
    labels = decided.names()
    found = []
    for i in range(len(images)):
        evidence = []
        for label in top[i].tolist():
            similarity = float(similarities[i, label])
            if similarity > -math.inf:
                near = _nearest_of_class(unit[i : i + 1], index, label, neighbours)
                shown = tuple(
                    _neighbour(recognizer, row, cosine)
                    for row, cosine in zip(near[0][0].tolist(), near[1][0].tolist(), strict=True)
                )
                bias = decision.class_bias[label] / k if decision.class_bias else 0.0
                evidence.append(ClassEvidence(recognizer.class_names[label], similarity / k, shown, bias))
        found.append(
            Explanation(
                ready.images[i],
                images.sources[i] if images.sources else "",
                labels[i],
                float(decided.score[i]),
                float(decided.threshold[i]),
                heat[i],
                tuple(evidence),
                float(decided.p_value[i]),
            )
        )
    return found


def heat_maps(recognizer: Recognizer, images: ImageSet) -> Tensor:
    """Return (N, H, W) in [0, 1]: LayerCAM of the winning class's score, at the layers of the method.

    ``images`` are of the network's size and channels.
    """
    network = recognizer.network
    device = next(network.parameters()).device
    cam = LayerCAM(network, recognizer.layers or last_layer(network), normalize="per_image")
    by_neighbours = isinstance(recognizer.decision.detector, KNN) or network.classifier is None
    index = recognizer.index.state() if by_neighbours else {}  # a copy of all features
    network.eval()

    def similarity(z: Tensor) -> Tensor:
        """Return d_c(z): the neighbours are those of z itself, so one forward pass is enough."""
        unit = F.normalize(network.features(z), dim=1)
        nearest = _nearest_of_winner(recognizer, unit.detach().cpu(), index)
        return torch.einsum("nd,nkd->n", unit, nearest.to(unit))

    def logit(z: Tensor) -> Tensor:
        logits = network.logits(z)
        assert logits is not None
        return logits.amax(dim=1)

    maps = []
    with progress("heat maps", len(images)) as advance:
        for first in range(0, len(images), _IMAGES_AT_ONCE):
            some = images.images[first : first + _IMAGES_AT_ONCE].to(device)
            ready = recognizer.normalizer(some).contiguous(memory_format=torch.channels_last)
            maps.append(cam(ready, similarity if by_neighbours else logit).cpu())
            advance(len(some))
    if not maps:
        return torch.zeros(0, *images.images.shape[-2:])
    heat = torch.cat(maps)
    return heat / heat.amax((1, 2), keepdim=True).clamp(min=torch.finfo(heat.dtype).tiny)


def last_layer(network: Network) -> tuple[str, ...]:
    """Return the encoder's deepest named stage, for methods that name no layers."""
    names = list(getattr(network.encoder, "layer_names", {}))
    if not names:
        raise UserError("heat maps need a layer that gives feature maps (N, K, h, w); this encoder has none")
    return (names[-1],)


def _nearest_of_winner(recognizer: Recognizer, unit: Tensor, index: dict[str, Tensor]) -> Tensor:
    """Return (n, k, d), the k nearest images of argmax_c d_c of unit queries (n, d); zeros fill up."""
    values = add_bias(recognizer.index.class_similarity(unit), recognizer.decision.class_bias)
    winner = values.argmax(dim=1)
    nearest = unit.new_zeros(len(unit), recognizer.index.k, unit.shape[1])
    for label in sorted(set(winner.tolist())):
        of_class = winner == label
        rows, _ = _nearest_of_class(unit[of_class], index, label, recognizer.index.k)
        nearest[of_class, : rows.shape[1]] = index["features"][rows].to(unit)
    return nearest


def _nearest_of_class(
    unit: Tensor, index: dict[str, Tensor], label: int, count: int
) -> tuple[Tensor, Tensor]:
    """Return rows of the index and cosines (n, ≤ count) of the images of one class nearest to (n, d)."""
    rows = (index["labels"] == label).nonzero()[:, 0]
    similarity = unit @ index["features"][rows].T
    near = similarity.topk(min(count, len(rows)), dim=1)
    return rows[near.indices], near.values.clamp(-1.0, 1.0)


def _neighbour(recognizer: Recognizer, row: int, cosine: float) -> Neighbour:
    gallery = recognizer.gallery
    source = gallery.sources[row] if gallery.sources else f"training image {row}"
    return Neighbour(row, cosine, source, None if gallery.pictures is None else gallery.pictures[row])
