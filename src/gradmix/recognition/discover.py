"""Group what a recognizer rejected: candidates for new classes, to be named by a person.

HDBSCAN (Campello et al. 2013) on unit features: it needs no number of groups and leaves outliers alone, which
a batch of rejected images is full of. It draws nothing at random, so the same images give the same groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..data import ImageSet
from ..detection.bank import unit_rows
from ..errors import UserError

if TYPE_CHECKING:
    from .recognizer import Recognizer


@dataclass(frozen=True)
class Group:
    """Places in the given images, the most typical first, and how alike they are: the mean cosine to their
    mean direction. ``nearest`` is the known class that most of them look most like."""

    members: tuple[int, ...]
    cohesion: float
    nearest: str


@dataclass(frozen=True)
class Discovery:
    """``groups``, the largest first; rejected images in none of them; and those that were accepted."""

    groups: tuple[Group, ...]
    left_over: tuple[int, ...]
    accepted: tuple[int, ...]


def discover(recognizer: Recognizer, images: ImageSet, min_size: int = 5) -> Discovery:
    """Cluster the features of the ``images`` that are rejected, in groups of at least ``min_size``."""
    if min_size < 2:
        raise UserError(f"a group has at least 2 images; min_size must not be {min_size}")
    outputs = recognizer.outputs(images)
    scores = recognizer.scores(outputs)
    known = recognizer.threshold.accepts(scores.score, scores.label)
    rejected = (~known).nonzero()[:, 0]
    unit = unit_rows(outputs.features[rejected])
    cluster = _clusters(unit, min_size)
    groups = []
    for number in range(int(cluster.max()) + 1 if len(cluster) else 0):
        inside = cluster == number
        centre = torch.nn.functional.normalize(unit[inside].mean(0), dim=0)
        closeness = unit[inside] @ centre
        typical = closeness.argsort(descending=True, stable=True)
        places = rejected[inside]
        nearest = int(scores.label[places].mode().values)
        members = tuple(places[typical].tolist())
        groups.append(Group(members, float(closeness.mean()), recognizer.class_names[nearest]))
    groups.sort(key=lambda group: (-len(group.members), min(group.members)))
    left_over = rejected[cluster < 0] if len(cluster) else rejected
    return Discovery(tuple(groups), tuple(left_over.tolist()), tuple(known.nonzero()[:, 0].tolist()))


def _clusters(unit: Tensor, min_size: int) -> Tensor:
    """(N, d) unit vectors -> (N,) number of the cluster, -1 for none."""
    if len(unit) < min_size:
        return torch.full((len(unit),), -1)
    from sklearn.cluster import HDBSCAN

    points = unit.double().numpy()
    # Leaves of the tree: of several new classes in one batch, the most persistent cluster is often all of
    # them together. Only where there are no leaves, one class alone, may the root be a group.
    found = HDBSCAN(min_cluster_size=min_size, cluster_selection_method="leaf", copy=True).fit_predict(points)
    if found.max() < 0:
        alone = HDBSCAN(min_cluster_size=min_size, allow_single_cluster=True, copy=True)
        found = alone.fit_predict(points)
    return torch.from_numpy(found).long()
