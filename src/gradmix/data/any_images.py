"""Make an ImageSet of folders, files, arrays or torch data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from ..errors import UserError
from .imageset import UNKNOWN, ImageFormat, ImageSet
from .loading import load_image_files, load_images
from .resize import convert


def as_labeled_images(x: Any, y: Any, image_format: ImageFormat) -> tuple[ImageSet, NDArray[Any]]:
    """Return images and their classes: ``classes[label]`` is the user's value of a label, sorted.

    Without ``y``, ``x`` must bring its labels: a folder of class folders, an ImageSet, a torch Dataset.
    """
    if y is None:
        images = _with_own_labels(x, image_format)
        if bool((images.labels < 0).any()):
            raise UserError("some images are labelled unknown; train on images of known classes only")
        # A data set without class names has whole numbers; their text is only what the model file holds.
        numbers = isinstance(x, Dataset) and not hasattr(x, "classes")
        return images, np.asarray([int(n) if numbers else n for n in images.class_names])
    if isinstance(x, ImageSet) and y is not None:
        x = x.images[:]
    images = as_images(x, image_format)
    target = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    if target.ndim != 1 or len(target) != len(images):
        raise UserError(f"{len(images)} images but y of shape {target.shape}; give one label per image")
    if target.dtype.kind == "f" and not bool((target == np.floor(target)).all()):
        raise UserError("y must hold classes (text or whole numbers), not a continuous target")
    classes, index = np.unique(target, return_inverse=True)
    names = tuple(str(name) for name in classes.tolist())
    return ImageSet(images.images, torch.from_numpy(index.astype(np.int64)), names, images.sources), classes


def as_images(x: Any, image_format: ImageFormat) -> ImageSet:
    """Return images without regard to labels: of files or a folder searched through, too."""
    if isinstance(x, ImageSet):
        return x.convert(image_format.size, image_format.channels)
    if isinstance(x, Dataset):
        return _from_dataset(x, image_format)
    files = _files(x)
    if files is not None:
        return load_image_files(files, size=image_format.size, channels=image_format.channels)[0]
    return _from_arrays(x).convert(image_format.size, image_format.channels)


def _files(x: Any) -> list[Path] | None:
    """Return the paths that ``x`` is or holds, or None."""
    if isinstance(x, str | Path):
        return [Path(x)]
    if isinstance(x, np.ndarray) and x.ndim == 1 and x.dtype.kind in "UO":
        x = x.tolist()
    if isinstance(x, Sequence) and len(x) and all(isinstance(item, str | Path) for item in x):
        return [Path(item) for item in x]
    return None


def _from_arrays(x: Any) -> ImageSet:
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


def _with_own_labels(x: Any, image_format: ImageFormat) -> ImageSet:
    if isinstance(x, ImageSet):
        return x.convert(image_format.size, image_format.channels)
    if isinstance(x, Dataset):
        return _from_dataset(x, image_format)
    if isinstance(x, str | Path):
        return load_images(x, size=image_format.size, channels=image_format.channels)
    raise UserError("y is missing: arrays need a label per image; a folder of class folders needs none")


def _from_dataset(data: Dataset[Any], image_format: ImageFormat) -> ImageSet:
    """Return every (image, label) of a torch Dataset; images may be PIL's, uint8, or float from 0 to 1."""
    pictures, labels = [], []
    for i in range(len(data)):  # type: ignore[arg-type]
        item = data[i]
        image, label = item if isinstance(item, tuple) and len(item) == 2 else (item, -1)
        pictures.append(convert(_to_nchw(image, i), image_format.size, image_format.channels))
        labels.append(int(label))
    if not pictures:
        raise UserError("the data set is empty")
    present = sorted({label for label in labels if label >= 0})  # a Subset may leave classes out
    new_label = {label: i for i, label in enumerate(present)}
    relabeled = torch.tensor([new_label.get(label, UNKNOWN) for label in labels])
    return ImageSet(torch.cat(pictures), relabeled, _names(present, getattr(data, "classes", None)))


def _names(labels: list[int], names: Sequence[Any] | None) -> tuple[str, ...]:
    """Return the names of a data set's labels; their numbers, if it has no names."""
    if not names:
        return tuple(map(str, labels))
    if labels and labels[-1] >= len(names):
        raise UserError(f"label {labels[-1]} of the data set has no name: it names {len(names)} classes")
    return tuple(str(names[label]) for label in labels)


def _to_nchw(image: Any, index: int) -> Tensor:
    """Return one image as (1, C, H, W) uint8."""
    array = image if isinstance(image, Tensor) else torch.from_numpy(np.array(image))
    if array.is_floating_point():
        if not bool((array >= 0).all() and (array <= 1).all()):
            raise UserError(
                f"image {index} of the data set is outside 0 … 1; leave normalising to the recipe"
            )
        array = (array * 255).round().to(torch.uint8)
    if array.dim() == 3 and array.shape[0] not in (1, 3):
        array = array.movedim(-1, 0)
    return ImageSet.from_arrays(array[None]).images[:]
