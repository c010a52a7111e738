"""What in a folder of labelled images looks wrong to a model: labels, near duplicates, odd ones out.

Every image is compared with all others by the cosine of its activations before any projection, each left out
of its own neighbours.
The labels are those of the folder; which classes the model knows does not matter.

- **Mislabelled**: of the K nearest images most are of one other class, and none of its own.
- **Near duplicates**: among the K nearest there is one whose pixels are nearly the same. Features alone would
  not tell two photographs of one kind from one photograph twice; so small grey pictures are correlated, also
  mirrored and moved by a sixteenth of their side.
- **Odd ones out**: less like their own class than all but very few of it, by far: the mean cosine to the
  nearest images of the class lies more than :data:`_FAR` robust standard deviations below its median.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import UNKNOWN, ImageSet
from ..data.mapped_images import iterate_parts
from ..detection.bank import unit_rows
from ..errors import UserError
from ..progress import progress
from .recognizer import Recognizer

NEIGHBOURS = 20
_OTHER = 0.6  # the share of the neighbours that must be of one other class
_FAR = 4.0
_SAME_PIXELS = 0.95  # correlation of two small grey pictures
_THUMB = 16
_PAIRS_AT_ONCE = 4096
_BYTES_AT_ONCE = 64 * 2**20
MISLABELLED, DUPLICATE, ODD = "mislabelled?", "near duplicate", "odd one out"


@dataclass(frozen=True)
class Concern:
    """Image ``first``, and another one if there is one; ``sure`` orders the concerns of a kind."""

    kind: str
    first: int
    second: int | None
    what: str
    sure: float


@dataclass(frozen=True, eq=False)
class Review:
    """The concerns, most certain first within each kind, and where to find image number i."""

    concerns: tuple[Concern, ...]
    splits: tuple[str, ...]
    sets: tuple[ImageSet, ...]
    nearest: Tensor  # (N, K) numbers of the nearest images, the nearest first

    def locate(self, number: int) -> tuple[int, int]:
        """Return the set and the row of image ``number``."""
        for i, images in enumerate(self.sets):
            if number < len(images):
                return i, number
            number -= len(images)
        raise IndexError(number)

    def name(self, number: int) -> str:
        """Return the file of an image, or its split and row."""
        i, row = self.locate(number)
        return self.sets[i].sources[row] if self.sets[i].sources else f"{self.splits[i]}#{row}"

    def class_name(self, number: int) -> str:
        """Return the class that the folder gives an image."""
        i, row = self.locate(number)
        label = int(self.sets[i].labels[row])
        return self.sets[i].class_names[label] if label != UNKNOWN else "(none)"

    def pixels(self, number: int) -> Tensor:
        """Return an image, uint8 (C, H, W)."""
        i, row = self.locate(number)
        return self.sets[i].images[row]


def review_images(recognizer: Recognizer, sets: Sequence[ImageSet], splits: Sequence[str]) -> Review:
    """Look for concerns among the images of all ``sets`` together; ``splits`` are the names of the sets."""
    sets = tuple(recognizer.convert(images) for images in sets)
    if sum(len(images) for images in sets) < 2:
        raise UserError("fewer than two images: nothing to compare")
    names = tuple(sorted({name for images in sets for name in images.class_names}))
    labels = torch.cat([_labels_among(images, names) for images in sets])
    unit = _extract(recognizer, sets, splits)
    nearest, _ = _find_nearest(unit, _count_neighbours(labels))
    review = Review((), tuple(splits), sets, nearest)
    wrong = [*_find_mislabelled(nearest, labels, names)]
    thumbs = torch.cat([_shrink(images) for images in sets])
    split_of = torch.cat([torch.full((len(images),), i) for i, images in enumerate(sets)])
    twice = [*_find_duplicates(nearest, thumbs, labels, split_of, review)]
    known_wrong = {c.first for c in wrong}
    odd = [c for c in _find_odd(unit, labels, names) if c.first not in known_wrong]
    concerns = [c for kind in (wrong, twice, odd) for c in sorted(kind, key=lambda c: -c.sure)]
    return Review(tuple(concerns), tuple(splits), sets, nearest)


def _extract(recognizer: Recognizer, sets: Sequence[ImageSet], splits: Sequence[str]) -> Tensor:
    """Return unit features (N, d) of all images, around their mean.

    Those before the projection: a whitening has drawn the images that it was fitted to together, and all
    others of the same folder would look odd.
    """
    found = []
    for images, split in zip(sets, splits, strict=True):
        outputs = recognizer.outputs(images, f"features of {split}", cache=True, penultimate=True)
        found.append((outputs.features if outputs.penultimate is None else outputs.penultimate).cpu().float())
    features = torch.cat(found)
    return unit_rows(features - features.mean(dim=0))


def _labels_among(images: ImageSet, names: Sequence[str]) -> Tensor:
    """Return the labels (N,) as positions among ``names``; -1 where there is none."""
    place = torch.tensor([*(names.index(name) for name in images.class_names), UNKNOWN])
    return place[images.labels]


def _count_neighbours(labels: Tensor) -> int:
    """Return K: no more than the smallest class has, or 5, so that its images can have neighbours in it."""
    known = labels[labels != UNKNOWN]
    smallest = int(known.bincount()[torch.unique(known)].min()) if len(known) else NEIGHBOURS
    return min(NEIGHBOURS, max(5, smallest - 1), len(labels) - 1)


def _find_nearest(unit: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the numbers and cosines (N, k) of the k nearest other rows, some hundred rows at a time."""
    rows = max(1, _BYTES_AT_ONCE // (8 * len(unit)))
    indices, values = [], []
    with progress("comparing images", len(unit)) as advance:
        for first in range(0, len(unit), rows):
            cosine = unit[first : first + rows] @ unit.T
            own = torch.arange(len(cosine))
            cosine[own, first + own] = -torch.inf
            best = cosine.topk(k, dim=1)
            indices.append(best.indices)
            values.append(best.values)
            advance(len(cosine))
    return torch.cat(indices), torch.cat(values)


def _find_mislabelled(nearest: Tensor, labels: Tensor, names: Sequence[str]) -> Iterator[Concern]:
    """Yield images whose neighbours are of another class."""
    near, k = labels[nearest], nearest.shape[1]
    other = near.mode(dim=1).values  # the most frequent class
    share = (near == other[:, None]).sum(dim=1) / k
    alone = (near != labels[:, None]).all(dim=1)
    wrong = (labels != UNKNOWN) & (other != UNKNOWN) & alone & (share >= _OTHER)
    for i in wrong.nonzero()[:, 0].tolist():
        own, near_class = names[int(labels[i])], names[int(other[i])]
        count = round(float(share[i]) * k)
        what = f"called {own}, but of its {k} nearest images {count} are {near_class} and none {own}"
        yield Concern(MISLABELLED, i, None, what, float(share[i]))


def _shrink(images: ImageSet) -> Tensor:
    """Return small grey pictures (N, 16, 16)."""
    grey = (pixels.float().mean(dim=1, keepdim=True) for pixels in iterate_parts(images.images))
    return torch.cat([F.adaptive_avg_pool2d(some, _THUMB)[:, 0] for some in grey])


def _correlate(one: Tensor, other: Tensor) -> Tensor:
    """Return how alike pictures (n, 16, 16) are, (n,): the correlation of the middle of one with the other.

    The best of those moved by up to one of the 16 pixels in each direction, mirrored or not.
    """
    inner = _THUMB - 2
    middle = one[:, 1:-1, 1:-1]
    wanted = torch.stack([_standardize(middle), _standardize(middle.flip(2))])
    best = one.new_full((len(one),), -1.0)
    for y in range(3):
        for x in range(3):
            moved = _standardize(other[:, y : y + inner, x : x + inner])
            best = torch.maximum(best, (wanted * moved).sum(dim=2).amax(dim=0))
    return best


def _standardize(pictures: Tensor) -> Tensor:
    """Return pictures (n, h, w) as rows of mean 0 and length 1; rows of one color stay 0."""
    rows = pictures.flatten(1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    standard: Tensor = rows / length.clamp_min(1.0)
    return standard


def _find_duplicates(
    nearest: Tensor, thumbs: Tensor, labels: Tensor, split_of: Tensor, review: Review
) -> Iterator[Concern]:
    """Yield pairs of images with nearly the same pixels, each pair once."""
    found: dict[tuple[int, int], float] = {}
    for column in nearest.T:
        parts = torch.split(torch.arange(len(column)), _PAIRS_AT_ONCE)
        same = torch.cat([_correlate(thumbs[rows], thumbs[column[rows]]) for rows in parts])
        for i in (same >= _SAME_PIXELS).nonzero()[:, 0].tolist():
            pair = (min(i, int(column[i])), max(i, int(column[i])))
            found[pair] = max(found.get(pair, 0.0), float(same[i]))
    for (i, j), alike in found.items():
        classes = apart = ""
        if labels[i] != labels[j]:
            classes = f", called {review.class_name(i)} and {review.class_name(j)}"
        if split_of[i] != split_of[j]:
            apart = ", in {} and in {}".format(*(review.splits[int(split_of[n])] for n in (i, j)))
        what = f"nearly the same as {review.name(j)}{classes}{apart} (correlation {alike:.3f})"
        # What changes results most comes first: two labels for one image, then one image in two parts.
        yield Concern(DUPLICATE, i, j, what, alike + 2 * bool(classes) + bool(apart))


def _find_odd(unit: Tensor, labels: Tensor, names: Sequence[str]) -> Iterator[Concern]:
    """Yield images that are unlike the others of their class."""
    for label, name in enumerate(names):
        rows = (labels == label).nonzero()[:, 0]
        if len(rows) <= NEIGHBOURS:
            continue
        _, cosine = _find_nearest(unit[rows], NEIGHBOURS // 2)
        typical = cosine.mean(dim=1)
        median = typical.median()
        spread = 1.4826 * (typical - median).abs().median().clamp_min(1e-6)
        distance = (median - typical) / spread
        for i in (distance > _FAR).nonzero()[:, 0].tolist():
            less = int((typical <= typical[i]).sum())
            what = f"only {less} of the {len(rows)} images of {name} are so unlike the others"
            yield Concern(ODD, int(rows[i]), None, what, float(distance[i]))
