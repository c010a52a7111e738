"""Mixed views: an image with part of another in it. One interface for every mixer."""

from .boxes import Boxes, boxes_at_peak, boxes_at_spot, boxes_at_window, random_boxes
from .interface import MixDraws, Mixed, Mixer, derangement
from .mixers import MIXERS, CutMix, GradMix, Mixup, draw_mix
from .paste import paste

__all__ = [
    "MIXERS",
    "Boxes",
    "CutMix",
    "GradMix",
    "MixDraws",
    "Mixed",
    "Mixer",
    "Mixup",
    "boxes_at_peak",
    "boxes_at_spot",
    "boxes_at_window",
    "derangement",
    "draw_mix",
    "paste",
    "random_boxes",
]
