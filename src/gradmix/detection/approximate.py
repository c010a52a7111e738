"""Nearest neighbours without looking at every training image: an inverted file of faiss (extra ``faiss``).

The images are put into about √M cells; a query looks into the nearest cells only and finds most of its
nearest images there. Nothing of faiss is ever saved: the index is built again, from a fixed seed, where a
model is loaded.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from .bank import Bank

CANDIDATES = 256  # nearest images per query, of all classes together
_CELLS_SEARCHED = 32
_TRAINING_IMAGES_PER_CELL = 64
_SEED = 0


def import_faiss() -> Any:
    """Return the faiss module, or raise one line about how to get it."""
    try:
        import faiss
    except ImportError as error:
        raise UserError(
            "the approximate index needs faiss: pip install 'gradmix[faiss]' (or use the exact one)"
        ) from error
    return faiss


class ApproximateIndex:
    """An inverted file over a bank; takes the bank's place in a search, and as much memory once more."""

    def __init__(self, bank: Bank, cells: int | None = None, cells_searched: int = _CELLS_SEARCHED) -> None:
        faiss = import_faiss()
        self._bank = bank
        count, dimensions = len(bank.labels), bank.features.shape[1]
        cells = cells or max(1, math.isqrt(count))
        self._index = faiss.IndexIVFFlat(
            faiss.IndexFlatIP(dimensions), dimensions, cells, faiss.METRIC_INNER_PRODUCT
        )
        self._index.cp.seed = _SEED
        self._index.cp.max_points_per_centroid = _TRAINING_IMAGES_PER_CELL
        self._index.cp.min_points_per_centroid = 1  # small sets are few cells, not a warning
        self._index.nprobe = min(cells_searched, cells)
        unit = bank.features[bank.row_of_image].cpu().numpy()
        self._index.train(unit)
        self._index.add(unit)
        self._sums, self._sizes = _class_sums(bank)

    def nearest(self, unit: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """Return images (n, top) probably nearest to unit queries (n, d), -1 if fewer; and their cosines."""
        similarity, image = self._index.search(
            unit.cpu().contiguous().numpy(), min(top, len(self._bank.labels))
        )
        device = unit.device
        return torch.from_numpy(image).to(device), torch.from_numpy(similarity).to(device).clamp(-1.0, 1.0)

    @torch.no_grad()
    def class_similarity(self, unit: Tensor, k: int, chunk_bytes: int, own: Tensor | None = None) -> Tensor:
        """Return d_c as :meth:`Bank.class_similarity`, from the nearest images that were found.

        Where fewer than k of a class were found, the missing ones count with the mean similarity to the rest
        of the class. The largest of the rest are no less than that, so that d_c is never overestimated;
        classes far from the query, of which nothing was found, still count.
        """
        image, similarity = self.nearest(unit, CANDIDATES)
        found = image >= 0
        sizes = self._sizes.expand(len(unit), -1)  # (n, C)
        total = unit @ self._sums.T  # of all similarities to a class
        if own is not None:
            own_image = self._bank.image[own]
            found &= image != own_image[:, None]
            own_label = self._bank.labels[own_image][:, None]
            total.scatter_add_(1, own_label, -unit.square().sum(dim=1, keepdim=True))
            sizes = sizes.scatter_add(1, own_label, -torch.ones_like(own_label))
        label = self._bank.labels[image.clamp_min(0)]
        found &= _rank_within_class(label, found) < k
        sums = torch.zeros_like(total).scatter_add_(1, label, similarity * found)
        count = torch.zeros_like(sizes).scatter_add_(1, label, found.long())
        rest = ((total - sums) / (sizes - count).clamp_min(1)).clamp(-1.0, 1.0)
        wanted = sizes.clamp_max(k)  # a class may have fewer images than k
        d = (sums + (wanted - count) * rest) * k / wanted.clamp_min(1)
        return torch.where(wanted > 0, d, torch.full_like(d, -torch.inf))


def _rank_within_class(label: Tensor, found: Tensor) -> Tensor:
    """Count the found entries of the same label before each entry; (n, T), any labels -> (n, T).

    >>> _rank_within_class(torch.tensor([[7, 3, 7, 7]]), torch.tensor([[True, True, False, True]]))
    tensor([[0, 0, 1, 1]])
    """
    order = torch.argsort(label, dim=1, stable=True)
    in_order, counted = label.gather(1, order), found.gather(1, order).long()
    before = counted.cumsum(1) - counted
    starts = torch.ones_like(in_order, dtype=torch.bool)
    starts[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
    # ``before`` never falls, so the latest start's is the largest one so far.
    base = torch.where(starts, before, torch.zeros_like(before)).cummax(1).values
    return torch.empty_like(before).scatter_(1, order, before - base)


def _class_sums(bank: Bank) -> tuple[Tensor, Tensor]:
    """Sum the unit features (C, d) and count the images (C,) of each class."""
    sizes = torch.bincount(bank.labels, minlength=bank.num_classes)
    sums = bank.features.new_zeros((bank.num_classes, bank.features.shape[1]))
    for group in bank.groups:  # padding is zero and adds nothing
        rows = bank.features[group.first : group.first + len(group.classes) * group.width]
        sums[group.classes] = rows.view(len(group.classes), group.width, -1).sum(dim=1)
    return sums, sizes
