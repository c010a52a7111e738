"""From a name or path to an ImageSet: find the files, unpack archives, read."""

from .archives import is_archive, unpack_archive
from .load import (
    has_validation_folder,
    list_class_names,
    list_splits,
    load_image_files,
    load_images,
    read_located,
)
from .locate import Located, find_known, locate, recognize

__all__ = [
    "Located",
    "find_known",
    "has_validation_folder",
    "is_archive",
    "list_class_names",
    "list_splits",
    "load_image_files",
    "load_images",
    "locate",
    "read_located",
    "recognize",
    "unpack_archive",
]
