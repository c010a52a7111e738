"""One file per format. A new format is one more module with ``FORMAT``, ``splits``, ``count``, ``read``."""

from __future__ import annotations

from typing import cast

from . import (
    cifar_batches,
    class_folders,
    csv_list,
    cub,
    dtd,
    emnist_idx,
    fgvc_aircraft,
    hub_parquet,
    mnist_idx,
    npz_file,
    stanford_cars,
    svhn_mat,
    tiny_imagenet,
    unlabeled_folder,
)
from .interface import Reader, ReadOptions, ReadResult

# Tried in this order; class folders last, because any folder of folders could be one.
READERS: tuple[Reader, ...] = tuple(
    cast(Reader, module)
    for module in (
        *(npz_file, mnist_idx, emnist_idx, cifar_batches, svhn_mat, tiny_imagenet, dtd),
        *(cub, stanford_cars, fgvc_aircraft, hub_parquet, csv_list, class_folders),
    )
)
UNLABELED_READERS: tuple[Reader, ...] = (cast(Reader, unlabeled_folder),)

__all__ = ["READERS", "UNLABELED_READERS", "ReadOptions", "ReadResult", "Reader"]
