"""Images as uint8 tensors, in memory or mapped from disk: readers, and known/unknown splits."""

from .any_images import as_images, as_labeled_images, iterate_images, read_own_labels, read_targets
from .benchmarks import BENCHMARKS, Benchmark, UnknownSource
from .cache import CacheFolder, cache_contents, cache_limit, clear_cache, make_room, mark_used
from .catalogue import KNOWN_SETS
from .class_lists import match_classes
from .decoding import MAX_PIXELS, BadImage, Unreadable, decode, decode_many, open_image, refuse_damage
from .file_names import is_hidden, is_image_name
from .imageset import UNKNOWN, ImageFormat, ImageSet
from .inspection import CheckReport, Finding, Listing, SplitInfo, check_data, describe_data, list_data
from .loading import (
    has_validation_folder,
    is_archive,
    list_class_names,
    list_splits,
    load_image_files,
    load_images,
    unpack_archive,
)
from .mapped_images import Pixels
from .open_set import OpenSetData, draw_held_out, names_of, open_set_data, rank_in_class
from .overlap import describe_identical, find_identical, refuse_identical
from .protocols import (
    CLASSIC_PROTOCOLS,
    FAMILIES,
    PROTOCOLS,
    Split,
    custom_split,
    duplicates,
    get_split,
    openness,
    splits_hash,
)
from .roots import cache_root, data_root
from .unknown_sets import MissingSet, UnknownSet, has_unknown_sets, load_unknown_sets, pool_groups

__all__ = [
    "BENCHMARKS",
    "CLASSIC_PROTOCOLS",
    "FAMILIES",
    "KNOWN_SETS",
    "MAX_PIXELS",
    "PROTOCOLS",
    "UNKNOWN",
    "BadImage",
    "Benchmark",
    "CacheFolder",
    "CheckReport",
    "Finding",
    "ImageFormat",
    "ImageSet",
    "Listing",
    "MissingSet",
    "OpenSetData",
    "Pixels",
    "Split",
    "SplitInfo",
    "UnknownSet",
    "UnknownSource",
    "Unreadable",
    "as_images",
    "as_labeled_images",
    "cache_contents",
    "cache_limit",
    "cache_root",
    "check_data",
    "clear_cache",
    "custom_split",
    "data_root",
    "decode",
    "decode_many",
    "describe_data",
    "describe_identical",
    "draw_held_out",
    "duplicates",
    "find_identical",
    "get_split",
    "has_unknown_sets",
    "has_validation_folder",
    "is_archive",
    "is_hidden",
    "is_image_name",
    "iterate_images",
    "list_class_names",
    "list_data",
    "list_splits",
    "load_image_files",
    "load_images",
    "load_unknown_sets",
    "make_room",
    "mark_used",
    "match_classes",
    "names_of",
    "open_image",
    "open_set_data",
    "openness",
    "pool_groups",
    "rank_in_class",
    "read_own_labels",
    "read_targets",
    "refuse_damage",
    "refuse_identical",
    "splits_hash",
    "unpack_archive",
]
