"""The fifteen common corruptions of Hendrycks & Dietterich (2019) at five severities, on whole batches."""

from .apply import CORRUPTIONS, corrupt
from .frost_pictures import FrostPictures, load_frost
from .official import has_official, load_official
from .severity import SEVERITIES

__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "FrostPictures",
    "corrupt",
    "has_official",
    "load_frost",
    "load_official",
]
