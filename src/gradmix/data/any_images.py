"""Make an ImageSet of whatever holds images: folders, files, arrays, lists, iterators, data sets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ..errors import UserError
from .array_layout import to_stack
from .concatenate import concatenate_unknown
from .image_items import ACCEPTED, is_single, picture_to_nchw, read_items, refuse_address
from .imageset import UNKNOWN, ImageFormat, ImageSet
from .loading import list_splits, load_image_files, load_images
from .resize import convert

_ITEMS_AT_ONCE = 512  # of an iterator; whole batches of the network, so that it rounds as with all at once


def as_labeled_images(
    x: Any, y: Any, image_format: ImageFormat, splits: Sequence[str] = ("train",)
) -> tuple[ImageSet, NDArray[Any]]:
    """Return images and their classes: ``classes[label]`` is the user's value of a label, sorted.

    Without ``y``, ``x`` must bring its labels: a folder of class folders, an ImageSet, a torch Dataset. Of a
    folder that is divided, the first of ``splits`` that it has is read.
    """
    if y is None:
        images = read_own_labels(x, image_format, splits)
        if bool((images.labels < 0).any()):
            raise UserError("some images are labelled unknown; train on images of known classes only")
        # A data set without class names has whole numbers; their text is only what the model file holds.
        numbers = isinstance(x, Dataset) and not hasattr(x, "classes")
        return images, np.asarray([int(n) if numbers else n for n in images.class_names])
    if isinstance(x, ImageSet):
        x = x.images[:]
    target = read_targets(y)
    images = as_images(x, image_format, len(target))
    if len(target) != len(images):
        raise UserError(f"{len(images)} images but y of shape {target.shape}; give one label per image")
    if target.dtype.kind == "f" and not bool((target == np.floor(target)).all()):
        raise UserError("y must hold classes (text or whole numbers), not a continuous target")
    classes, index = np.unique(target, return_inverse=True)
    names = tuple(str(name) for name in classes.tolist())
    return ImageSet(images.images, torch.from_numpy(index.astype(np.int64)), names, images.sources), classes


def read_targets(y: Any) -> NDArray[Any]:
    """Return the labels (N,): of an array, a list, a Series, a column, an iterator."""
    if isinstance(y, Iterator):
        y = list(y)
    target = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    if target.ndim != 1:
        raise UserError(f"y has shape {target.shape}; give one label per image")
    if target.dtype.kind != "O":
        return target
    values = target.tolist()
    texts = [isinstance(value, str) for value in values]
    plain = np.asarray(values)
    if plain.dtype.kind == "O" or (any(texts) and not all(texts)):
        odd = next((value for value, text in zip(values, texts, strict=True) if text != texts[0]), values[0])
        raise UserError(
            f"y mixes {values[0]!r} and {odd!r}; give all labels as text, or all as whole numbers"
        )
    return plain


def as_images(x: Any, image_format: ImageFormat, count: int | None = None) -> ImageSet:
    """Return images without regard to labels: of files or a folder searched through, too.

    ``count``: how many images there are, if that is known; it decides where an array could be one image or
    several (see :mod:`.array_layout`).
    """
    parts = list(iterate_images(x, image_format, count))
    return parts[0] if len(parts) == 1 else concatenate_unknown(parts)


def iterate_images(x: Any, image_format: ImageFormat, count: int | None = None) -> Iterator[ImageSet]:
    """Yield the images in parts: an iterator's as they come, 512 at once; all others in one part."""
    if isinstance(x, IterableDataset) or not _is_whole(x):
        return _iterate_items(iter(x), image_format)
    return iter([_read_whole(x, image_format, count)])


def _is_whole(x: Any) -> bool:
    """Return whether all images are there already, or ``x`` is not any images and will be refused."""
    if isinstance(x, str | os.PathLike | ImageSet | Dataset | Tensor | np.ndarray | Sequence) or is_single(x):
        return True
    return _is_table(x) or isinstance(x, Mapping | Set | DataLoader) or not isinstance(x, Iterable)


def _iterate_items(items: Iterator[Any], image_format: ImageFormat) -> Iterator[ImageSet]:
    number = 0
    while some := list(islice(items, _ITEMS_AT_ONCE)):
        yield read_items(some, image_format, number)
        number += len(some)
    if not number:
        raise UserError("no images: the iterator is empty, or was used up before")


def _read_whole(x: Any, image_format: ImageFormat, count: int | None) -> ImageSet:
    size, channels = image_format.size, image_format.channels
    if isinstance(x, ImageSet):
        return x.convert(size, channels)
    if isinstance(x, Dataset):
        return _from_dataset(x, image_format)
    if is_single(x):
        return read_items([x], image_format)
    x = _take_column(x) if _is_table(x) else x
    if isinstance(x, Tensor | np.ndarray) and (isinstance(x, Tensor) or x.dtype.kind not in "OUST"):
        return ImageSet.from_arrays(to_stack(x, image_format, count)).convert(size, channels)
    if isinstance(x, np.ndarray):
        x = x.reshape(-1).tolist() if x.ndim < 2 or x.shape[1:] == (1,) else [x.tolist()]
    if isinstance(x, str | os.PathLike):
        x = [x]
    if not isinstance(x, Sequence) or isinstance(x, range):
        raise UserError(f"{_describe(x)}; {ACCEPTED}")
    if not len(x):
        raise UserError("no images: the list is empty")
    if all(isinstance(item, str | os.PathLike) for item in x):
        for item in x:
            refuse_address(item)
        return load_image_files([Path(item) for item in x], size=size, channels=channels)[0]
    if isinstance(x[0], list | tuple):  # numbers in lists of lists
        return _from_nested(x, image_format, count)
    parts = [
        read_items(x[first : first + _ITEMS_AT_ONCE], image_format, first)
        for first in range(0, len(x), _ITEMS_AT_ONCE)
    ]
    return concatenate_unknown(parts)


def _describe(x: Any) -> str:
    if isinstance(x, DataLoader):
        return "a DataLoader gives batches that are changed already: give its data set (loader.dataset)"
    return f"no images: this is of type {type(x).__name__}"


def _is_table(x: Any) -> bool:
    """Return whether ``x`` is a column or a table of pandas, which is not imported for that."""
    return hasattr(x, "iloc") and hasattr(x, "to_numpy")


def _take_column(x: Any) -> list[Any]:
    if getattr(x, "ndim", 1) == 1:
        return list(x)
    columns = [str(name) for name in x.columns]
    if len(columns) != 1:
        raise UserError(
            f"a table of {len(columns)} columns ({', '.join(columns[:5])}{', …' if len(columns) > 5 else ''})"
            "; give the one that holds the images: table['…']"
        )
    return list(x.iloc[:, 0])


def _from_nested(x: Sequence[Any], image_format: ImageFormat, count: int | None) -> ImageSet:
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise UserError("the images have different sizes; give files, or resize them to one") from error
    if array.dtype.kind not in "biuf":
        raise UserError(f"image 0 is of type {type(x[0]).__name__}, which is no image; {ACCEPTED}")
    return _read_whole(array, image_format, count)


def read_own_labels(x: Any, image_format: ImageFormat, splits: Sequence[str]) -> ImageSet:
    """Return images that bring their labels (-1: unknown); of a folder the first of ``splits`` it has."""
    if isinstance(x, ImageSet):
        return x.convert(image_format.size, image_format.channels)
    if isinstance(x, Dataset):
        return _from_dataset(x, image_format)
    if isinstance(x, str | os.PathLike):
        refuse_address(x)
        source = x if isinstance(x, str) else Path(x)
        split = splits[0]
        if tuple(splits) != ("train",):
            there = list_splits(source)
            split = next((name for name in (*splits, "all") if name in there), split)
        return load_images(source, split=split, size=image_format.size, channels=image_format.channels)
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
    if isinstance(image, Image.Image):
        return picture_to_nchw(image, None, f"image {index} of the data set")
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
