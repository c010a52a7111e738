"""Images as uint8 tensors: readers of what people have on disk, and known/unknown splits."""

from .catalogue import KNOWN_SETS
from .decode_many import BadImage
from .imageset import UNKNOWN, ImageSet
from .load import load_image_files, load_images, splits_of
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
