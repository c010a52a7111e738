"""Results kept on disk: decoded images, pixel files, unpacked archives; their size limit and deletion."""

from .contents import CacheFolder, cache_contents, cache_limit, clear_cache, make_room, mark_used
from .decode_cache import decode_cached
from .folders import check_free_space, fill_folder
from .pixel_file import decode_to_file, should_map

__all__ = [
    "CacheFolder",
    "cache_contents",
    "cache_limit",
    "check_free_space",
    "clear_cache",
    "decode_cached",
    "decode_to_file",
    "fill_folder",
    "make_room",
    "mark_used",
    "should_map",
]
