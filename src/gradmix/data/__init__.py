"""Images as uint8 tensors, in memory or mapped from disk: readers, and known/unknown splits."""

from .catalogue import KNOWN_SETS
from .decode_many import BadImage
from .imageset import UNKNOWN, ImageSet
from .load import class_names_of, load_image_files, load_images, splits_of
from .open_set import OpenSetData, open_set_data
from .protocols import FAMILIES, PROTOCOLS, Split, custom_split, duplicates, get_split, openness, splits_hash
from .roots import cache_root, data_root

__all__ = [
    "FAMILIES",
    "KNOWN_SETS",
    "PROTOCOLS",
    "UNKNOWN",
    "BadImage",
    "ImageSet",
    "OpenSetData",
    "Split",
    "cache_root",
    "class_names_of",
    "custom_split",
    "data_root",
    "duplicates",
    "get_split",
    "load_image_files",
    "load_images",
    "open_set_data",
    "openness",
    "splits_hash",
    "splits_of",
]
