"""What the network sees: batched, seeded augmentation in training, plain normalization elsewhere."""

from .augment import Augment, Draws, ViewSettings
from .normalize import Normalizer

__all__ = ["Augment", "Draws", "Normalizer", "ViewSettings"]
