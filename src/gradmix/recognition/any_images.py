"""Images however people have them, as an ImageSet: folders, files, arrays, torch data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from ..data import UNKNOWN, ImageSet, load_image_files, load_images
from ..data.resize import fitted
from ..errors import UserError


@dataclass(frozen=True)
class Wanted:
    """The size and the channels that a network takes."""

    size: int
    channels: int


def labelled_images(x: Any, y: Any, wanted: Wanted) -> tuple[ImageSet, NDArray[Any]]:
    """Images and their classes: ``classes[label]`` is what the user calls a label, sorted.

    Without ``y``, ``x`` must bring its labels: a folder of class folders, an ImageSet, a torch Dataset.
    """
    if y is None:
        images = _with_own_labels(x, wanted)
        if bool((images.labels < 0).any()):
            raise UserError("some images are labelled unknown; train on images of known classes only")
        # A data set without class names has whole numbers; their text is only what the model file holds.
        numbers = isinstance(x, Dataset) and not hasattr(x, "classes")
        return images, np.asarray([int(n) if numbers else n for n in images.class_names])
    if isinstance(x, ImageSet) and y is not None:
        x = x.images[:]
    images = plain_images(x, wanted)
    target = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    if target.ndim != 1 or len(target) != len(images):
        raise UserError(f"{len(images)} images but y of shape {target.shape}; give one label an image")
    if target.dtype.kind == "f" and not bool((target == np.floor(target)).all()):
        raise UserError("y must hold classes (text or whole numbers), not a continuous target")
    classes, index = np.unique(target, return_inverse=True)
    names = tuple(str(name) for name in classes.tolist())
    return ImageSet(images.images, torch.from_numpy(index.astype(np.int64)), names, images.sources), classes


def plain_images(x: Any, wanted: Wanted) -> ImageSet:
    """Images without regard to labels: also files, a list of files, or a folder searched through."""
    if isinstance(x, ImageSet):
        return x.converted(wanted.size, wanted.channels)
    if isinstance(x, Dataset):
        return _of_data_set(x, wanted)
    files = _files(x)
    if files is not None:
        return load_image_files(files, size=wanted.size, channels=wanted.channels)[0]
    return _of_arrays(x).converted(wanted.size, wanted.channels)


def _files(x: Any) -> list[Path] | None:
    """Paths, if ``x`` is one or holds some."""
    if isinstance(x, str | Path):
        return [Path(x)]
    if isinstance(x, np.ndarray) and x.ndim == 1 and x.dtype.kind in "UO":
        x = x.tolist()
    if isinstance(x, Sequence) and len(x) and all(isinstance(item, str | Path) for item in x):
        return [Path(item) for item in x]
    return None


def _of_arrays(x: Any) -> ImageSet:
    if not isinstance(x, Tensor):
        try:
            x = np.asarray(x)
        except ValueError as error:
            raise UserError("the images have different sizes; give files, or resize them to one") from error
    if x.ndim == 2:
        raise UserError(
            f"images have shape {tuple(x.shape)}; flattened ones have lost their height and width: "
            "reshape them to (N, H, W) or (N, H, W, C)"
        )
    return ImageSet.from_arrays(x)


def _with_own_labels(x: Any, wanted: Wanted) -> ImageSet:
    if isinstance(x, ImageSet):
        return x.converted(wanted.size, wanted.channels)
    if isinstance(x, Dataset):
        return _of_data_set(x, wanted)
    if isinstance(x, str | Path):
        return load_images(x, size=wanted.size, channels=wanted.channels)
    raise UserError("y is missing: arrays need a label an image; a folder of class folders needs none")


def _of_data_set(data: Dataset[Any], wanted: Wanted) -> ImageSet:
    """Every (image, label) of a torch Dataset; images may be PIL's, uint8, or float from 0 to 1."""
    pictures, labels = [], []
    for i in range(len(data)):  # type: ignore[arg-type]
        item = data[i]
        image, label = item if isinstance(item, tuple) and len(item) == 2 else (item, -1)
        pictures.append(fitted(_one(image, i), wanted.size, wanted.channels))
        labels.append(int(label))
    if not pictures:
        raise UserError("the data set is empty")
    there = sorted({label for label in labels if label >= 0})  # a Subset may leave classes out
    place = {label: i for i, label in enumerate(there)}
    closed_up = torch.tensor([place.get(label, UNKNOWN) for label in labels])
    return ImageSet(torch.cat(pictures), closed_up, _names(there, getattr(data, "classes", None)))


def _names(labels: list[int], names: Sequence[Any] | None) -> tuple[str, ...]:
    """What a data set calls its labels; their numbers, if it has no names."""
    if not names:
        return tuple(map(str, labels))
    if labels and labels[-1] >= len(names):
        raise UserError(f"label {labels[-1]} of the data set has no name: it names {len(names)} classes")
    return tuple(str(names[label]) for label in labels)


def _one(image: Any, place: int) -> Tensor:
    """(1, C, H, W) uint8."""
    array = image if isinstance(image, Tensor) else torch.from_numpy(np.array(image))
    if array.is_floating_point():
        if not bool((array >= 0).all() and (array <= 1).all()):
            raise UserError(
                f"image {place} of the data set is outside 0 … 1; leave normalising to the recipe"
            )
        array = (array * 255).round().to(torch.uint8)
    if array.dim() == 3 and array.shape[0] not in (1, 3):
        array = array.movedim(-1, 0)
    return ImageSet.from_arrays(array[None]).images[:]
