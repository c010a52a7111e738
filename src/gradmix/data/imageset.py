"""A set of images with labels: what all other packages take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import UserError
from ..progress import progress
from .arrays import label_indices, to_nchw
from .mapped_images import MappedImages, Pixels, iterate_parts
from .resize import convert

UNKNOWN = -1


@dataclass(frozen=True)
class ImageFormat:
    """The side in pixels and the channels (1 grey, 3 colour) of the images that a network takes."""

    size: int
    channels: int


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size with their labels; never changed in place.

    ``images`` (N, C, H, W) uint8 with C in {1, 3}; ``labels`` (N,) int64, an index into ``class_names``
    or -1 for unknown; ``sources`` says where each image came from ("cat/3.png", "train.parquet#17") and
    is empty or N long. ``images`` is a tensor, or, if there are more than memory holds, still on disk:
    ``images[index]`` is a tensor in both cases, and ``images[:]`` is all of them.
    """

    images: Pixels
    labels: Tensor
    class_names: tuple[str, ...]
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "sources", tuple(self.sources))
        _check_images(self.images)
        _check_labels(self.labels, len(self.images), self.class_names)
        if self.sources and len(self.sources) != len(self.images):
            raise UserError(
                f"{len(self.images)} images but {len(self.sources)} sources; give one each, or none"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def channels(self) -> int:
        return self.images.shape[1]

    def select(self, index: Tensor | Sequence[int]) -> ImageSet:
        """Return the images at ``index`` (integers, or a boolean mask of length N), in that order."""
        index = torch.as_tensor(index)
        if index.dtype == torch.bool:
            index = index.nonzero().squeeze(1)
        index = index.to(torch.int64).reshape(-1)
        if len(index) and not -len(self) <= int(index.min()) <= int(index.max()) < len(self):
            raise UserError(f"index {int(index.min())}..{int(index.max())} is outside the {len(self)} images")
        return replace(
            self,
            images=self.images.select(index) if isinstance(self.images, MappedImages) else self.images[index],
            labels=self.labels[index],
            sources=tuple(self.sources[i] for i in index.tolist()) if self.sources else (),
        )

    def only(self, classes: Sequence[int], as_unknown: bool = False) -> ImageSet:
        """Return the images of ``classes``, relabeled 0, 1, … in the order given.

        With ``as_unknown`` all labels become -1 and no class name is left.
        """
        classes = list(classes)
        for c in classes:
            if not 0 <= c < len(self.class_names):
                raise UserError(f"no class {c}: there are {len(self.class_names)}, counted from 0")
        if len(set(classes)) != len(classes):
            raise UserError(f"a class is named twice in {classes}")
        # One entry more, at the end: label -1 (unknown) indexes it and stays -1.
        new_label = torch.full((len(self.class_names) + 1,), UNKNOWN)
        new_label[torch.tensor(classes, dtype=torch.int64)] = torch.arange(len(classes))
        labels = new_label[self.labels]
        kept = replace(self, labels=labels, class_names=tuple(self.class_names[c] for c in classes)).select(
            labels != UNKNOWN
        )
        if as_unknown:
            kept = replace(kept, labels=torch.full_like(kept.labels, UNKNOWN), class_names=())
        return kept

    def counts(self) -> dict[str, int]:
        """Return the images per class, in class order, empty classes too; ``unknown`` last if any."""
        number = torch.bincount(self.labels + 1, minlength=len(self.class_names) + 1).tolist()
        counts = dict(zip(self.class_names, number[1:], strict=True))
        if number[0]:
            counts["unknown"] = counts.get("unknown", 0) + number[0]
        return counts

    def class_counts(self) -> dict[str, int]:
        """Return the images per class, in class order, empty classes too; without images of no class."""
        many = torch.bincount(self.labels[self.labels >= 0], minlength=len(self.class_names))
        return dict(zip(self.class_names, many.tolist(), strict=True))

    def convert(self, size: int | None, channels: int | None) -> ImageSet:
        """Return the images as size × size squares with 1 or 3 channels; None keeps what they have."""
        images: Pixels = self.images
        if channels not in (None, 1, 3):
            raise UserError(f"channels must be 1 (grey) or 3 (colour), not {channels}")
        if size is not None and size < 1:
            raise UserError(f"size must be at least 1 pixel, not {size}")
        now = images.shape[1:]
        if (channels or now[0], size or now[1], size or now[2]) == tuple(now):
            return self
        if isinstance(images, MappedImages):
            images = images.convert(size, channels)
        else:
            images = convert(images, size, channels)
        return replace(self, images=images)

    def content_hash(self) -> str:
        """Return 16 hex digits of SHA-256 over shape, pixels, labels and class names, not ``sources``."""
        digest = hashlib.sha256(json.dumps([list(self.images.shape), self.class_names]).encode())
        with progress("hashing the images", len(self)) as advance:
            for part in iterate_parts(self.images):
                digest.update(part.contiguous().numpy().data)
                advance(len(part))
        digest.update(self.labels.contiguous().numpy().data)
        return digest.hexdigest()[:16]

    @staticmethod
    def from_arrays(
        images: object, labels: object = None, class_names: Sequence[str] | None = None
    ) -> ImageSet:
        """Return an ImageSet of ``images`` (numpy or torch, uint8; NHW, NHWC or NCHW) and ``labels``.

        ``labels`` are class indices (-1 = unknown), class names as text, or None (all unknown). Without
        ``class_names``, indices are named "0", "1", …, and text labels are sorted. A 4-d array that could be
        read both ways, because it is 1 or 3 pixels high, is read as NCHW.
        """
        tensor = to_nchw(images)
        if labels is None:
            return ImageSet(tensor, torch.full((len(tensor),), UNKNOWN), tuple(class_names or ()))
        return ImageSet(tensor, *label_indices(labels, class_names))


def _check_images(images: Pixels) -> None:
    if not isinstance(images, Tensor | MappedImages) or images.dtype != torch.uint8:
        what = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise UserError(f"images must be a uint8 tensor, not {what}; ImageSet.from_arrays takes numpy arrays")
    if images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape[2:]:
        raise UserError(f"images must have shape (N, 1 or 3, H, W), not {tuple(images.shape)}")


def _check_labels(labels: Tensor, n: int, class_names: tuple[str, ...]) -> None:
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
        what = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise UserError(f"labels must be an int64 tensor, not {what}; ImageSet.from_arrays takes other kinds")
    if labels.shape != (n,):
        raise UserError(
            f"{n} images but labels of shape {tuple(labels.shape)}; there must be one label an image"
        )
    if n and int(labels.min()) < UNKNOWN:
        raise UserError(f"label {int(labels.min())} is not allowed: labels count from 0, and -1 is 'unknown'")
    if n and int(labels.max()) >= len(class_names):
        raise UserError(f"label {int(labels.max())} has no name: there are {len(class_names)} class names")
    seen: set[str] = set()
    for name in class_names:
        if not isinstance(name, str):
            raise UserError(f"class names must be text, not {name!r}")
        if name in seen:
            raise UserError(f"two classes are both called '{name}'")
        seen.add(name)
