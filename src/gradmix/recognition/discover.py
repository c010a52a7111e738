"""Group what a recognizer rejected: candidates for new classes, to be named by a person.

HDBSCAN (Campello et al. 2013) on unit features: it needs no number of groups and leaves outliers alone, which
a batch of rejected images is full of. It draws nothing at random, so the same images give the same groups.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..data import ImageSet
from ..detection.bank import unit_rows
from ..errors import UserError

if TYPE_CHECKING:
    from .recognizer import Recognizer

GROUP_FILE = "group.json"  # in the folder of each group that `gradmix discover` writes


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
    found = recognizer.decision.decide(outputs)
    known = found.accepted
    rejected = (~known).nonzero()[:, 0]
    unit = unit_rows(outputs.features[rejected])
    cluster = _clusters(unit, min_size)
    groups = []
    for number in range(int(cluster.max()) + 1 if len(cluster) else 0):
        inside = cluster == number
        center = torch.nn.functional.normalize(unit[inside].mean(0), dim=0)
        closeness = unit[inside] @ center
        typical = closeness.argsort(descending=True, stable=True)
        images_inside = rejected[inside]
        nearest = int(found.nearest[images_inside].mode().values)
        members = tuple(images_inside[typical].tolist())
        groups.append(Group(members, float(closeness.mean()), recognizer.class_names[nearest]))
    groups.sort(key=lambda group: (-len(group.members), min(group.members)))
    left_over = rejected[cluster < 0] if len(cluster) else rejected
    return Discovery(tuple(groups), tuple(left_over.tolist()), tuple(known.nonzero()[:, 0].tolist()))


def _clusters(unit: Tensor, min_size: int) -> Tensor:
    """Cluster unit vectors (N, d); return the number of the cluster (N,), -1 for none."""
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


def check_free(folder: Path) -> None:
    """Refuse a folder that exists: what a person has named and sorted there is not written over."""
    if folder.exists():
        raise UserError(f"{folder} exists already; choose another --out, or delete it")
    if not folder.parent.is_dir():
        raise UserError(f"no folder {folder.parent} to put {folder.name} into; make it first")


def read_group_files(folder: Path) -> list[Path]:
    """Return the image files of a group."""
    file = folder / GROUP_FILE
    if not file.is_file():
        raise UserError(f"{folder} is not a group of 'gradmix discover' (no {GROUP_FILE} in it)")
    try:
        files = [Path(str(name)) for name in json.loads(file.read_text(encoding="utf-8"))["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged: it lists no files") from error
    if not files:
        raise UserError(f"{file} lists no files")
    return files
